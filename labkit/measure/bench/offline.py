"""`bench offline`: the continuous engine on one workload, all requests at once."""

import statistics
import sys
import time
from argparse import Namespace
from dataclasses import replace

from labkit.console import Stages
from labkit.kernels import IMPLEMENTATIONS, default_for
from labkit.measure import workload
from labkit.measure.bench import arguments, peers, slots
from labkit.measure.bench.drive import Run, drive, forget_prefixes
from labkit.measure.bench.report import Column, Report, megabytes, milliseconds, percent
from labkit.measure.bench.watch import timed_calls

SUMMARY = "throughput of the continuous engine; load time, memory, unused KV slots"
HELP = """\
Loads a model, gives the continuous engine all requests of a workload at once, and measures how
fast they are done: the figure that servers are compared by. arrival_s is not looked at. Prefix
caching is off unless asked for, since others are compared that way.

  tokens/s    output tokens / (last token - start); each run, and the median of the runs.
              The first run includes what is prepared only once
  ready       from the start of this process until the engine could take a request, in which:
              imports, weights (reading and packing, and reading the compiled loops; Numba
              compiles them on the first run on a machine, some 15 s)
  memory      resident memory of this process (RSS): beside the KV pool, which costs nothing
              until it is written to, and after the runs
  unused      KV slots that a request holds at its end and hasn't filled, for blocks of 8 to 128
              tokens: ceil(length / block) * block - length, length = prompt + output - 1
  perplexity  exp(mean negative log-likelihood) of a fixed text of about 1,400 tokens in windows
              of 512, for this dtype and float32 (--perplexity)

With --transformers the same requests go through transformers as well, the best of the runs: in
batches of 4, and by its own continuous batching.

  python3 -m labkit bench offline --dtype int8 --perplexity
  python3 -m labkit bench offline --device cuda --dtype bfloat16 --cuda-graphs --transformers
  python3 -m labkit bench offline --workload mix16.jsonl --dtype float32 --json offline.json"""

FORMULAS = [
    "tokens/s = output tokens / (last token - start)",
    "unused = ceil(length / block size) * block size - length; length = prompt + output - 1",
]
RUN_COLUMNS = [
    Column("run", "run"),
    Column("tokens", "tokens", "{:,}"),
    Column("seconds", "seconds", "{:.2f}"),
    Column("tokens_per_s", "tokens/s", "{:.1f}"),
    Column("steps", "steps", "{:,}"),
    Column("step_mean_s", "mean step ms", milliseconds),
]
SLOT_COLUMNS = [
    Column("block_size", "block size"),
    Column("unused_mean", "unused slots per request", "{:.1f}"),
    Column("unused_share", "of the reserved", percent),
    Column("source", "source"),
]
PEER_COLUMNS = [
    Column("engine", "engine"),
    Column("tokens", "tokens", "{:,}"),
    Column("tokens_per_s", "tokens/s", "{:.1f}"),
]
LOAD_COLUMNS = [Column("name", "until ready"), Column("seconds", "seconds", "{:.2f}")]
PERPLEXITY_COLUMNS = [
    Column("dtype", "dtype"),
    Column("perplexity", "perplexity", "{:.3f}"),
    Column("tokens", "tokens", "{:,}"),
]


def add_options(parser) -> None:
    arguments.add_workload(parser)
    arguments.add_model(parser)
    arguments.add_dtype(parser, (*arguments.CPU_DTYPES, "float16"))
    for name, default in [("runs", 3), ("max-num-batched-tokens", 512), ("max-num-seqs", 64)]:
        parser.add_argument(
            f"--{name}",
            type=arguments.whole(1),
            default=default,
            metavar="N",
            help=f"default: {default}",
        )
    parser.add_argument("--device", default="cpu", help="cpu (default), or cuda")
    parser.add_argument(
        "--attention", choices=IMPLEMENTATIONS, help="default: the fastest on the device"
    )
    parser.add_argument("--cuda-graphs", action="store_true", help="replay decode steps on a GPU")
    parser.add_argument("--transformers", action="store_true", help="beside it, for comparison")
    parser.add_argument("--prefix-caching", action="store_true", help="share equal prefixes")
    parser.add_argument("--perplexity", action="store_true", help="of a fixed text; some seconds")


def contradiction(options: Namespace) -> str | None:
    on_gpu = options.device != "cpu"
    if options.cuda_graphs and not on_gpu:
        return "--cuda-graphs is for a GPU; add --device cuda"
    if options.dtype == "float16" and not on_gpu:
        return "--dtype float16 is for a GPU; take bfloat16, or add --device cuda"
    if options.dtype == "int8" and (on_gpu or options.transformers):
        return "--dtype int8 is labkit's on a CPU; choose another for this comparison"
    return None


def run(options: Namespace, report: Report) -> None:
    """Loads, runs, and prints what each took."""
    asked, source = arguments.workload_of(options)
    others = options.perplexity + options.transformers
    stages = Stages(1 + options.runs + others, sys.stderr)
    with stages.stage(f"loading {options.model} in {options.dtype}"):
        loaded, engine, load = load_engine(options)
        requests = workload.to_requests([replace(r, arrival_s=0.0) for r in asked], loaded)
    report.header(
        FORMULAS,
        options.seed,
        model=options.model,
        dtype=options.dtype,
        device=f"{options.device}, attention {options.attention or default_for(options.device)}"
        f"{', CUDA graphs' if options.cuda_graphs else ''}",
        workload=f"{source}: {len(asked)} requests, all at once",
        limits=f"{options.max_num_seqs} requests and {options.max_num_batched_tokens} tokens a "
        f"step, prefix caching {'on' if options.prefix_caching else 'off'}",
    )
    if any(r.arrival_s for r in asked):
        report.note("arrival_s is not looked at here: all requests are there from the start.")
    report.table("load", LOAD_COLUMNS, load)
    loaded_rss, watched, runs = resident_bytes(), slots.EndWatch(engine.scheduler), []
    for number in range(1, options.runs + 1):
        with stages.stage(f"run {number}") as tell:
            forget_prefixes(engine)
            runs.append(drive(engine, requests, tell))
    tell_runs(runs, report)
    tell_memory(engine, loaded_rss, report)
    tell_slots(engine, requests, runs[-1], watched, report)
    if options.transformers:
        with stages.stage("transformers") as tell:
            del engine, watched  # memory holds one model at a time
            rows = peers.rows(
                options.model, options.dtype, options.device, requests, options.runs, tell
            )
        report.table("transformers", PEER_COLUMNS, rows)
    if options.perplexity:
        with stages.stage("perplexity") as tell:
            rows = perplexities(loaded, options, tell)
        report.table("perplexity", PERPLEXITY_COLUMNS, rows)


def load_engine(options: Namespace) -> tuple:
    """The model and an engine over it, and what each part of loading took, as rows."""
    import psutil

    began = time.perf_counter()
    from labkit import rungs
    from labkit.model import loading

    with loading.garbage_left():
        import torch  # noqa: F401
        from transformers import AutoTokenizer, PreTrainedTokenizerFast  # noqa: F401

        from labkit.model import cpu_decoder  # noqa: F401
    imports = time.perf_counter() - began
    began = time.perf_counter()
    with timed_calls(loading, "read_tokenizer", "tiny_tokenizer") as tokenizer:
        loaded = loading.load_decoder(
            options.model, dtype=options.dtype, device=options.device, attention=options.attention
        )
    weights = time.perf_counter() - began
    engine = rungs.make(
        "continuous",
        loaded,
        max_num_seqs=options.max_num_seqs,
        max_num_batched_tokens=options.max_num_batched_tokens,
        prefix_caching=options.prefix_caching,
        cuda_graphs=options.cuda_graphs,
    )
    ready = time.time() - psutil.Process().create_time()
    parts = {
        "imports": imports,
        "weights": weights,
        "tokenizer, beside the weights": sum(tokenizer.values()),
        "the rest": ready - imports - weights,
        "from start of process to ready": ready,
    }
    return loaded, engine, [{"name": name, "seconds": value} for name, value in parts.items()]


def tell_runs(runs: list[Run], report: Report) -> None:
    rows = [
        {
            "run": number,
            "tokens": run.num_tokens,
            "seconds": run.seconds,
            "tokens_per_s": run.tokens_per_s,
            "steps": len(run.step_seconds),
            "step_mean_s": statistics.fmean(run.step_seconds),
        }
        for number, run in enumerate(runs, start=1)
    ]
    report.table("rows", RUN_COLUMNS, rows)
    median = statistics.median(run.tokens_per_s for run in runs)
    report.keep(median_tokens_per_s=median)
    report.note(f"median of {len(runs)} runs: {median:.1f} tokens/s")


def tell_slots(engine, requests, last: Run, watched: slots.EndWatch, report: Report) -> None:
    """Unused KV slots for other sizes of a block, and as they were in the last run."""
    lengths = [
        slots.stored(r.num_prompt_tokens, len(last.token_ids[r.request_id])) for r in requests
    ]
    size = engine.scheduler.pool.block_size
    measured = slots.row(size, list(watched.pairs.values()), "measured")
    report.table("unused_slots", SLOT_COLUMNS, [*slots.by_arithmetic(lengths), measured])


def tell_memory(engine, loaded_rss: int, report: Report) -> None:
    pool, after = engine.runner.cache.num_bytes, resident_bytes()
    report.keep(rss_loaded_bytes=loaded_rss, rss_after_bytes=after, kv_pool_bytes=pool)
    report.note(
        f"resident memory: {megabytes(loaded_rss)} MB loaded, the KV pool of {megabytes(pool)} MB "
        f"still untouched; {megabytes(after)} MB after the runs, with what they used of it"
    )
    report.say()


def resident_bytes() -> int:
    """What this process holds of the machine's memory now."""
    import psutil

    return psutil.Process().memory_info().rss


def perplexities(loaded, options: Namespace, tell) -> list[dict]:
    """A row for the precision that was measured, and one for float32."""
    from labkit.measure.bench.perplexity import perplexity
    from labkit.model import loading

    rows = []
    for dtype in dict.fromkeys([options.dtype, "float32"]):
        tell(dtype)
        if dtype != options.dtype:
            loaded = loading.load_decoder(options.model, dtype=dtype)
        value, count = perplexity(loaded)
        rows.append({"dtype": dtype, "perplexity": value, "tokens": count})
    return rows
