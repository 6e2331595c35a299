"""`bench bottleneck`: six causes of a device that does little, switched on one by one."""

import asyncio
import random
import sys
import tempfile
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.console import Stages
from labkit.measure.bench import arguments, paced_devices
from labkit.measure.bench.drive import Tell
from labkit.measure.bench.report import Report
from labkit.measure.simulate import cards
from labkit.measure.simulate.options import number

SUMMARY = "six causes of a device that does little, one by one, and what gives each away"
HELP = """\
A healthy server with a paced device, then the same with one thing wrong at a time. Server, HTTP,
tokenizer, scheduler, messages and processes are real (engine and API are apart in every row);
the device is modelled: it waits, using no CPU, as long as the card's data sheet says.

  baseline     N clients, each of which asks again when it has its answer; short prompts
  tokenizer    prompts are a long text of few tokens, a wide table of blanks (one for all: the
               prefix cache has it), so that the API is busy making tokens of them while the
               device, whose contexts stay short, waits for requests
  small-batch  max_num_seqs 2: each step reads all weights for two tokens
  kv           a cache of a quarter of the blocks needed: requests wait, or are preempted and
               computed again
  transfer     the same, and preempted ones are swapped over a slow link (0.5 GB/s, as to a disk)
  scheduler    a policy that compares every two running requests in each step: real Python work
  bandwidth    each client has a long context in the cache: its keys and values are read in every
               step, so the device is busy with reading

  device busy  seconds in which the device has a step / the run. Like the "GPU utilization" of
               nvidia-smi it counts a step of one token as one of many; copies over the link,
               which nvidia-smi leaves out, are in it
  MFU          2 x parameters x tokens (in, not cached, and out) / (peak FLOP/s x the run)
  tokens/step  output tokens / steps of the engine
  queue        first step - arrival at the server, of the last 256 requests that ended and of
               those open at the end
  TTFT, ITL    as the client sees it: first token - it asked; gap between its tokens. One that
               has no token at the end counts with the time that it has waited
  KV           blocks held / blocks, looked at five times a second
  API core, engine core    CPU seconds of these processes / the run; 100% is one core
  busy ms/step seconds on the device / steps
The sentence for each cause names the figures that changed most against the baseline, by factor,
and those that it changed more than any other cause did.

Steps should take 5 to 20 ms: long enough for the API to send the tokens of one while the next
is computed, so that the baseline is the device's. A100:8b reads 15 GB of weights in 7.4 ms.
About a minute and a half.

  python3 -m labkit bench bottleneck --plot bottlenecks.png
  python3 -m labkit bench bottleneck --device L40S:8b --causes small-batch,bandwidth"""

FORMULAS = [
    "device busy = seconds with a step on the device / the run; tokens/step = tokens out / steps",
    "MFU = 2 x parameters x tokens computed / (peak FLOP/s x the run)",
    "queue = first step - arrival at the server; TTFT = first token - asked; ITL = gap of tokens",
]
CAUSES = ("tokenizer", "small-batch", "kv", "transfer", "scheduler", "bandwidth")
PROMPT_TOKENS, LEAST_OUT, MOST_OUT = 64, 16, 48
BLOCK_SIZE, FEW_SLOTS, SHORTAGE = 16, 2, 4  # a quarter of the blocks
CHARACTERS = 8  # of a text, for each token of a long prompt
SLOW_LINK = 0.5e9  # bytes/s, as to a SATA disk
SERVER = "labkit.serving"


@dataclass(frozen=True)
class Case:
    """One row: the switch in words, and what it is for the server and its clients."""

    cause: str
    switch: str
    options: Sequence[str] = ()  # of the server, after those of the baseline
    long: str = ""  # prompts: "text" of many characters that all share, or "ids", each its own
    module: str = SERVER
    host_bandwidth: float | None = None


def add_options(parser) -> None:
    parser.add_argument(
        "--model", default="smollm2-135m", metavar="NAME",
        help="its tokenizer and its vocabulary are used (default: smollm2-135m)",
    )  # fmt: skip
    parser.add_argument(
        "--device", type=paced_devices.sized, default=paced_devices.sized("A100:8b"),
        metavar="CARD:SIZE", help="sizes are 1b, 8b, 32b (default: A100:8b)",
    )  # fmt: skip
    parser.add_argument(
        "--causes", type=causes, default=list(CAUSES), metavar="C,...",
        help=f"beside the baseline (default: {','.join(CAUSES)})",
    )  # fmt: skip
    parser.add_argument(
        "--clients", type=arguments.whole(1, 512), default=32, metavar="N", help="default: 32"
    )
    parser.add_argument(
        "--long-tokens", type=arguments.whole(64), default=6000, metavar="N",
        help="of a long prompt (default: 6000)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=number(0), default=6.0, metavar="S", help="a row (default: 6)"
    )
    parser.add_argument("--plot", type=arguments.picture, metavar="FILE.png", help="draw it")


def causes(text: str) -> list[str]:
    for name in text.split(","):
        if name not in CAUSES:
            raise ArgumentTypeError(f"cause {name!r} is not known; accepted: {', '.join(CAUSES)}")
    return list(dict.fromkeys(text.split(",")))


def cases(options: Namespace) -> list[Case]:
    """The baseline, and the causes that were asked for."""
    each = -(-(PROMPT_TOKENS + MOST_OUT) // BLOCK_SIZE)  # blocks of a whole request
    few = ["--num-blocks", str(max(options.clients * each // SHORTAGE, each))]
    long, link = f"{options.long_tokens:,} tokens", f"{SLOW_LINK / 1e9:g} GB/s"
    known = {
        "tokenizer": Case("tokenizer", f"prompts are {CHARACTERS * options.long_tokens:,} "
                          "characters, nearly all blanks, and cached", long="text"),
        "small-batch": Case("small-batch", f"max_num_seqs {FEW_SLOTS}",
                            ["--max-num-seqs", str(FEW_SLOTS)]),
        "kv": Case("kv", f"{few[1]} KV blocks, 1/{SHORTAGE} of what the clients need", few),
        "transfer": Case("transfer", f"{few[1]} KV blocks, preempted ones swapped at {link}",
                         [*few, "--preemption", "swap"], host_bandwidth=SLOW_LINK),
        "scheduler": Case("scheduler", "a policy that compares every two running requests",
                          ["--policy", "pairwise"], module="labkit.measure.bench.pairwise"),
        "bandwidth": Case("bandwidth", f"contexts of {long}, read in every step", long="ids"),
    }  # fmt: skip
    baseline = Case("baseline", f"{options.clients} clients, prompts of {PROMPT_TOKENS} tokens")
    return [baseline, *(known[name] for name in options.causes)]


def baseline_options(options: Namespace) -> list[str]:
    """Slots and blocks for all clients, with long contexts too."""
    longest = options.long_tokens + PROMPT_TOKENS + MOST_OUT
    blocks = options.clients * -(-longest // BLOCK_SIZE) * 5 // 4
    return [
        "--policy", "fcfs", "--preemption", "recompute", "--max-num-seqs", str(options.clients),
        "--num-blocks", str(blocks), "--block-size", str(BLOCK_SIZE), "--seed", str(options.seed),
        "--log-format", "json", "--max-queued-requests", str(2 * options.clients),
    ]  # fmt: skip


def run(options: Namespace, report: Report) -> None:
    """Measures every case; prints the table and what gives each cause away, draws the picture."""
    from labkit.measure.bench import bottleneck_rows
    from labkit.serving.text import TextSide

    device = options.device
    cost = device.cost()
    facts = {
        "device": f"{device.about()}; weights are read in {1000 * cost.weights_s:.1f} ms",
        "load": f"{options.clients} clients in a closed loop, {PROMPT_TOKENS} tokens in, "
        f"{LEAST_OUT} to {MOST_OUT} out, {options.seconds:g} s a row",
    }
    report.header(FORMULAS, options.seed, model=options.model, **facts)
    text, rows = TextSide.load(options.model), []
    stages = Stages(1 + len(options.causes), sys.stderr)
    for case in cases(options):
        with stages.stage(case.cause) as tell:
            seen = measure(case, options, text, tell)
        who = {"cause": case.cause, "switch": case.switch, "label": device.label}
        peak = cards.card_named(device.place).flops
        rows.append(bottleneck_rows.row(who, seen, 2 * device.size.num_params, peak))
    report.table("rows", bottleneck_rows.COLUMNS, rows)
    base = rows[0]
    for one in rows[1:]:
        one["clue"] = bottleneck_rows.clue(one, rows)
        report.note(one["clue"])
    for told in bottleneck_rows.conclusions(rows, base):
        report.note(told)
    report.note("Measured: queue, TTFT, ITL, CPU. Modelled: how long the device takes for a step.")
    if options.plot:
        from labkit.measure.bench import bottleneck_plot

        bottleneck_plot.save(options.plot, rows, f"{facts['device']}\n{facts['load']}")
        report.note(f"picture: {options.plot}")


def measure(case: Case, options: Namespace, text, tell: Tell):
    """Starts the server of a case and loads it; a `bottleneck_rows.Seen`."""
    from labkit.measure.bench import bottleneck_load, served

    prompts = Prompts(case.long, options, text)
    with tempfile.TemporaryDirectory(prefix="labkit-bench-") as folder:
        told = options.device.server_options(options.model, Path(folder), case.host_bandwidth)
        told = [*told, *baseline_options(options), *case.options]
        with served.serving(told, module=case.module, tell=tell) as server:
            tell("the cache is filled")
            asyncio.run(bottleneck_load.fill(server.port, prompts.first()))
            tell(f"{options.clients} clients")
            return asyncio.run(
                bottleneck_load.play(server, prompts.next, options.clients, options.seconds)
            )


class Prompts:
    """What clients ask: random tokens, after a long beginning where a case wants one."""

    def __init__(self, long: str, options: Namespace, text):
        self.long, self.clients = long, options.clients
        self.draw = random.Random(f"prompts {options.seed}")
        self.beginnings = []
        if long == "text":
            self.beginnings = [wide_text(text, options.long_tokens)]
        elif long == "ids":
            self.beginnings = [self.ids(options.long_tokens) for _ in range(options.clients)]

    def ids(self, count: int) -> tuple[int, ...]:
        from labkit.measure.bench import sending

        return tuple(self.draw.choices(range(sending.LOW, sending.HIGH), k=count))

    def next(self, client: int):
        """The next request of a client."""
        out = self.draw.randint(LEAST_OUT, MOST_OUT)
        if self.long == "text":
            return self.request(out, prompt=f"{self.beginnings[0]} {self.draw.random()}")
        beginning = self.beginnings[client] if self.beginnings else ()
        return self.request(out, prompt_token_ids=(*beginning, *self.ids(PROMPT_TOKENS)))

    def first(self) -> list:
        """What fills the prefix cache; one short request where there is nothing to fill."""
        clients = range(self.clients if self.long == "ids" else 1)
        return [self.next(client) for client in clients]

    def request(self, out: int, **prompt):
        from labkit.measure.workload import WorkloadRequest

        return WorkloadRequest("q", out, ignore_eos=True, **prompt)


def wide_text(text, num_tokens: int) -> str:
    """A wide table, empty: as many characters as `num_tokens` long tokens of prose have, and far
    fewer tokens, since tokenizers have tokens of many blanks. At most `num_tokens` where one has
    none (a token a byte)."""
    row = " " * 255 + "\n"
    wide = row * (CHARACTERS * num_tokens // len(row))
    return wide if len(text.encode(wide)) <= num_tokens else wide[:num_tokens]
