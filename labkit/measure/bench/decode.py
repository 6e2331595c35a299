"""`bench decode`: one decode step against the least that the machine needs for it."""

import random
import statistics
import sys
import time
from argparse import Namespace

from labkit import machine
from labkit.console import Stages
from labkit.measure.bench import arguments, decode_cost, decode_profile, roofs
from labkit.measure.bench.drive import BenchError
from labkit.measure.bench.report import Column, Report, megabytes, milliseconds, percent
from labkit.measure.roofline import Machine, step_time

SUMMARY = "step time of the decoder against the roofline"
HELP = """\
Times one decode step of labkit's decoder: a batch of requests, each with one new token and a
context of so many tokens in the KV cache, in blocks that lie anywhere. Beside it stands the
floor, the least time that the machine needs for the bytes and the FLOP of such a step.

  bytes     every weight once (int8: 1 byte and the scales; the head once) + a row of the
            embedding table for each request + batch * context * KV bytes of a token
  FLOP      batch * (2 * weights + 4 * layers * heads * head_dim * context)
  floor     max(bytes / bandwidth, FLOP / peak)
  fraction  floor / step: 100% is as fast as the machine allows. More than that means that
            caches held a part of what is counted as read from memory

The bandwidth is the best of five reads of 1 GiB, the peak the best of five products of 2048 x
2048 matrices in the same precision. A step is the median of at least five; sampling and the
building of the batch are not in it. Cells that don't fit in memory are skipped, and named.

  python3 -m labkit bench decode
  python3 -m labkit bench decode --dtype int8 --batch 1,16 --context 64,2048 --profile"""

FORMULAS = [
    "bytes = weights + batch * hidden * bytes per number (embedding rows)",
    "        + batch * context * KV bytes per token",
    "FLOP = batch * (2 * weights + 4 * layers * heads * head_dim * context)",
    "floor = max(bytes / bandwidth, FLOP / peak); fraction = floor / step",
]
BLOCK_SIZE = 16
PROFILED = (16, 64)  # batch, context
MEMORY_SHARE = 0.8  # of what is free; the rest is for the step itself and for others
LEAST_STEPS, LEAST_SECONDS, MOST_STEPS = 5, 0.3, 50
COLUMNS = [
    Column("batch", "batch"),
    Column("context", "context"),
    Column("step_s", "step ms", milliseconds),
    Column("bytes", "MB", megabytes),
    Column("flops", "GFLOP", lambda flops: f"{flops / 1e9:,.1f}"),
    Column("floor_s", "floor ms", milliseconds),
    Column("bound", "bound by"),
    Column("fraction", "fraction", percent),
    Column("tokens_per_s", "tokens/s", "{:,.0f}"),
]
PROFILE_COLUMNS = [
    Column("part", "part"),
    Column("seconds", "ms a step", lambda seconds: f"{1000 * seconds:.2f}"),
    Column("share", "share", percent),
]


def add_options(parser) -> None:
    arguments.add_model(parser)
    arguments.add_dtype(parser)
    for name, default in [("batch", [1, 4, 16, 64]), ("context", [64, 512, 2048])]:
        parser.add_argument(
            f"--{name}",
            type=arguments.wholes,
            default=default,
            metavar="N,N,...",
            help=f"default: {','.join(map(str, default))}",
        )
    parser.add_argument(
        "--profile", action="store_true", help="the share of each part, batch 16, context 64"
    )


def run(options: Namespace, report: Report) -> None:
    """Measures the roofs, then every cell that fits, then the parts of a step."""
    stages = Stages(3 + options.profile, sys.stderr)
    with stages.stage(f"loading {options.model} in {options.dtype}"):
        decoder = load(options)
    report.header(FORMULAS, options.seed, model=options.model, dtype=options.dtype)
    with stages.stage("memory and products at their best"):
        bandwidth, read = roofs.bandwidth()
        peak, product = roofs.peak(options.dtype)
    report.keep(bandwidth=bandwidth, peak=peak)
    report.note(f"bandwidth {bandwidth / 1e9:.1f} GB/s ({read}, best of {roofs.RUNS})")
    report.note(f"peak {peak / 1e9:,.0f} GFLOP/s ({product}, best of {roofs.RUNS})")
    with stages.stage("steps") as tell:
        rows, skipped = measure(decoder, options, Machine(peak, bandwidth), tell)
    report.say()
    report.table("rows", COLUMNS, rows)
    for told in skipped:
        report.note(told)
    if options.profile:
        with stages.stage("profile"):
            parts = decode_profile.profile(decoder, *prepared(decoder, *PROFILED, options.seed))
        report.note("profile: batch {}, context {}, mean of ten steps".format(*PROFILED))
        report.table("profile", PROFILE_COLUMNS, parts)


def load(options: Namespace):
    """The decoder. BenchError when it has no positions for the contexts that are asked for."""
    from labkit.model import loading

    decoder = loading.load_decoder(options.model, dtype=options.dtype).model
    limit, longest = decoder.config.max_position, max(options.context)
    if longest > limit:
        raise BenchError(
            f"context {longest} is too long: {options.model} has positions for {limit} tokens; "
            "lower --context"
        )
    return decoder


def measure(decoder, options: Namespace, roof: Machine, tell) -> tuple[list[dict], list[str]]:
    """A row for each cell, and a sentence for each that doesn't fit in memory."""
    rows, skipped = [], []
    for context in sorted(options.context):
        for batch in sorted(options.batch):
            cell = f"batch {batch}, context {context}"
            tell(cell)
            needed, free = memory_needed(decoder, batch, context), machine.memory()[1]
            if needed > MEMORY_SHARE * free:
                needed, free = f"{needed / 1e9:.1f} GB", f"{free / 1e9:.1f} GB are free"
                skipped.append(f"{cell} is skipped: KV cache and step take {needed}, {free}")
                continue
            seconds = median_step(decoder, *prepared(decoder, batch, context, options.seed))
            rows.append(row(decoder, options.dtype, batch, context, seconds, roof))
    return rows, skipped


def row(decoder, dtype: str, batch: int, context: int, seconds: float, roof: Machine) -> dict:
    """One cell of the table."""
    from labkit.model.kv_cache import cache_dtype

    kv_number = cache_dtype(decoder.dtype, decoder.device).itemsize
    num_bytes = decode_cost.step_bytes(decoder.config, dtype, batch, context, kv_number)
    flops = decode_cost.step_flops(decoder.config, batch, context)
    floor, bound = step_time(flops, num_bytes, roof.peak_flops, roof.bandwidth)
    return {
        "batch": batch, "context": context, "step_s": seconds, "bytes": num_bytes,
        "flops": flops, "floor_s": floor, "bound": bound, "fraction": floor / seconds,
        "tokens_per_s": batch / seconds,
    }  # fmt: skip


def memory_needed(decoder, batch: int, context: int) -> int:
    """Bytes of a cell's KV cache, and about what its step makes: logits, scores, where keys lie."""
    from labkit.model.kv_cache import bytes_per_block

    config, blocks = decoder.config, batch * -(-context // BLOCK_SIZE)
    cache = blocks * bytes_per_block(config, BLOCK_SIZE, decoder.dtype, decoder.device)
    logits, keys = batch * config.vocab_size * 4, batch * config.num_heads * context * 8
    return cache + 2 * logits + 4 * keys


def prepared(decoder, batch: int, context: int, seed: int) -> tuple:
    """A batch of decoding requests, their blocks in a random order, and a cache full of numbers."""
    import torch

    from labkit.model.flat_batch import FlatBatch, Span
    from labkit.model.kv_cache import KVCache

    draw, per_request = random.Random(seed), -(-context // BLOCK_SIZE)
    blocks = list(range(batch * per_request))
    draw.shuffle(blocks)
    cache = KVCache(decoder.config, len(blocks), BLOCK_SIZE, decoder.dtype, decoder.device)
    some = torch.randn(1 << 20, generator=torch.Generator().manual_seed(seed)).to(cache.dtype)
    for layer in cache.layers:  # the same numbers again and again are as good, and quicker made
        for part in layer.view(-1).split(len(some)):
            part.copy_(some[: len(part)])
    spans = [
        Span(
            [draw.randrange(decoder.config.vocab_size)],
            context - 1,
            blocks[i * per_request : (i + 1) * per_request],
        )
        for i in range(batch)
    ]
    return FlatBatch.build(spans, BLOCK_SIZE, decoder.device), cache


def median_step(decoder, batch, cache) -> float:
    """Seconds of a step: the median of at least five, after two that warm up."""
    for _ in range(2):
        decoder(batch, cache)
    times: list[float] = []
    while len(times) < LEAST_STEPS or (sum(times) < LEAST_SECONDS and len(times) < MOST_STEPS):
        begin = time.perf_counter()
        decoder(batch, cache)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
