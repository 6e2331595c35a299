"""`bench triton-server`: a real Triton Inference Server beside labkit's own, on one workload."""

import math
import sys
from argparse import Namespace

from labkit.console import Stages
from labkit.measure import workload
from labkit.measure.bench import arguments, paced_devices
from labkit.measure.bench.report import Column, Report, megabytes, milliseconds
from labkit.measure.simulate.options import number

SUMMARY = "Triton Inference Server: its dynamic batcher, a decoupled model, load and unload"
HELP = """\
Starts a real Triton Inference Server, with labkit's engine in its Python backend, and asks it for
one workload over HTTP in three ways; then labkit's own server:

  dynamic, whole        its dynamic batcher makes batches of whole requests, up to --max-num-seqs.
                        A batch keeps the model until its longest answer has ended, and an answer
                        comes in one piece: TTFT is E2E. The engine runs fixed batches over blocks
  dynamic, streamed     the same batches from a decoupled model, which sends tokens as they come
  continuous, streamed  a decoupled model that takes every request at once; the engine decides in
                        each step who runs. So vLLM and TensorRT-LLM sit in this server
  labkit's own server   the same engine, in the same process, behind labkit's HTTP

With --device A100:8b the engine's steps take what a card's data sheet says, and no CPU: figures
are modelled there, and hardly depend on what else this machine does.

All four have the same weights, blocks and kernels, no prefix cache, and greedy tokens: what
differs is who makes batches, and who sends the answer. Then a model is loaded and unloaded in two
precisions, by the server's API (explicit model control: a client decides) and by labkit's
ModelCache (the least recently used leaves by itself).

  tokens/s    output tokens of whole answers / (last token - first arrival)
  TTFT, E2E   first and last token - arrival (when it was due), as the client sees them
  mean batch  requests in one call of the model; queue: in the server's queue, mean (its stats)
  memory      of all processes of the model (PSS), after its first token; KV blocks hardly touched

The server is an extra of 250 MB, for Linux: python3 -m labkit doctor --fix triton-server.
--stored shows a stored result instead, with its date and machine. About two minutes.

  python3 -m labkit bench triton-server
  python3 -m labkit bench triton-server --rate inf --requests 40 --json triton-server.json
  python3 -m labkit bench triton-server --device A100:8b --rate 4 --requests 64"""

KEPT = ("cpu", "A100:8b")  # devices of which a result is stored
OF_A_RUN = ("workload", "requests", "rate", "model", "max_num_seqs", "seed")
FORMULAS = [
    "tokens/s = output tokens of whole answers / (last token - first arrival)",
    "TTFT = first token - arrival; E2E = last token - arrival; percentiles by nearest rank",
]
ROWS = [
    Column("server", "server"),
    Column("batching", "batching"),
    Column("failed", "failed"),
    Column("tokens_per_s", "tokens/s", "{:,.1f}"),
    Column("ttft_p50_s", "TTFT p50 ms", milliseconds),
    Column("ttft_p99_s", "p99", milliseconds),
    Column("e2e_p50_s", "E2E p50 ms", milliseconds),
    Column("e2e_p99_s", "p99", milliseconds),
    Column("mean_batch", "mean batch", "{:.1f}"),
    Column("queue_mean_s", "queue ms", milliseconds),
]
MODELS = [
    Column("who", "who keeps models"),
    Column("model", "model"),
    Column("load_s", "load s", "{:.2f}"),
    Column("num_bytes", "MB", megabytes),
    Column("unload_s", "unload s", "{:.2f}"),
    Column("freed_bytes", "MB freed", megabytes),
]


def add_options(parser) -> None:
    arguments.add_workload(parser)
    parser.add_argument(
        "--model", metavar="NAME",
        help="smollm2-135m, tiny, a folder or a hub name (default: smollm2-135m)",
    )  # fmt: skip
    parser.add_argument(
        "--requests", type=arguments.whole(1, 10_000), metavar="N",
        help="default: 24, or all of a workload",
    )  # fmt: skip
    parser.add_argument(
        "--rate", type=rate, metavar="R",
        help="requests a second at random times, or inf: all at once (default: 1.5)",
    )  # fmt: skip
    parser.add_argument(
        "--device", type=device, default="cpu", metavar="D",
        help="cpu, or a paced card with a size of model, such as A100:8b (default: cpu)",
    )  # fmt: skip
    parser.add_argument(
        "--max-num-seqs", type=arguments.whole(1, 256), metavar="N",
        help="that run together, in every way (default: 8)",
    )  # fmt: skip
    parser.add_argument(
        "--stored", action="store_true",
        help=f"show a stored result, and measure nothing; there are those of {' and '.join(KEPT)}",
    )  # fmt: skip
    parser.set_defaults(seed=None)  # so that one that is given can be told apart


def rate(text: str) -> float:
    return math.inf if text == "inf" else number(0)(text)


def device(text: str) -> str:
    return (paced_devices.device if text == "cpu" else paced_devices.sized)(text).name


def contradiction(options: Namespace) -> str | None:
    if not options.stored:
        return None
    given = [name for name in OF_A_RUN if getattr(options, name) is not None]
    if given:
        option = given[0].replace("_", "-")
        return f"--stored shows what was measured once; leave --{option} out, or --stored"
    if options.device not in KEPT:
        return f"no result of --device {options.device} is stored; choose {' or '.join(KEPT)}"
    return None


def run(options: Namespace, report: Report) -> None:
    """Measures, or shows what is stored. Raises SetupError with the remedy, ServerError."""
    from labkit.fleet.triton_server import comparison_run

    if options.stored:
        tell(comparison_run.read_stored(options.device), report)
        report.note("This was stored; nothing was measured now.")
        return
    asked = workload.read(options.workload) if options.workload else []
    plan = {name: getattr(options, name) for name in ("model", "rate", "max_num_seqs", "seed")}
    plan = {name: value for name, value in plan.items() if value is not None}
    stages = Stages(1, sys.stderr)
    with stages.stage("both servers") as waiting:
        found = comparison_run.comparison(
            stored=False, tell=waiting, device=options.device, given=asked,
            num_requests=options.requests or len(asked) or 24, **plan,
        )  # fmt: skip
    tell(found, report)


def tell(found: dict, report: Report) -> None:
    """Prints and keeps a result, wherever it is from."""
    about = found["machine"]
    report.keep(bench=report.bench, formulas=FORMULAS)
    kept = {name: value for name, value in found.items() if name not in ("stored", "why")}
    report.keep(**kept)
    report.say(f"machine   {about['cpu']}, {about['cores']:g} cores, on {found['date']}")
    report.say(f"server    Triton Inference Server {found['version']}, Python backend")
    report.say(f"device    {found['device']}")
    together = f"up to {found['max_num_seqs']} together"
    report.say(f"model     {found['model']} in {found['dtype']}, {together}")
    report.say(f"workload  {found['workload']}")
    for i, formula in enumerate(FORMULAS):
        report.say(f"{'' if i else 'formula':9} {formula}")
    report.say()
    report.table("rows", ROWS, found["rows"])
    if found["models"]:
        report.table("models", MODELS, found["models"])
    busy = about.get("load_before")
    if busy is not None and busy > about["cores"] / 2 and found["label"] == "measured":
        report.note(
            f"Before the run {busy:.1f} programs wanted one of {about['cores']:g} cores: compare "
            "these figures with care, and run it again on a quiet machine."
        )
    failures = [row for row in found["rows"] if row["failed"]]
    for row in failures:
        name = f"{row['server']}, {row['batching']}"
        told = f"{name}: {row['failed']} of {row['requests']} requests failed"
        report.note(f"{told}; the first says: {row['first_failure']}")
