"""`bench ladder`: every rung on one workload, side by side."""

import gc
import sys
from argparse import Namespace
from collections.abc import Sequence
from itertools import zip_longest

from labkit import rungs
from labkit.console import Stages
from labkit.engine.request import Request
from labkit.measure import workload
from labkit.measure.bench import arguments
from labkit.measure.bench.drive import Run, Tell, drive, percentile, warm_up
from labkit.measure.bench.report import Column, Report, megabytes, milliseconds, percent
from labkit.measure.bench.watch import bytes_per_slot, watch
from labkit.measure.generation import count_forwards

SUMMARY = "every rung of the ladder on one workload"
HELP = """\
Runs one workload on every rung, from a loop without a cache to continuous batching, greedily
and in float32, and shows what each step up the ladder brings. A request is added when its
arrival_s says (the built-in workload: all at once).

  tokens/s        output tokens / (last token - first arrival)
  TTFT            first token - arrival; waiting in line is part of it
  ITL             gap between two consecutive tokens of one request, over all requests
  E2E             last token - arrival
  KV held         the most KV memory held at once: whole rows (cached), blocks in use (paged on)
  unused          held slots without a token, over held slots, both summed over all steps
  token-forwards  tokens that went through the model, padding included
  differs         requests whose tokens are not those of the first rung, and from which token
                  on: two scores that are nearly equal may change places with the rounding

p50 and p99 are by nearest rank. About two minutes for the built-in workload: the first two
rungs compute every token again for each new one.

  python3 -m labkit bench ladder
  python3 -m labkit bench ladder --rungs cached,paged,continuous --plot ladder.png
  python3 -m labkit bench ladder --workload mix16.jsonl --json ladder.json"""

FORMULAS = [
    "tokens/s = output tokens / (last token - first arrival)",
    "TTFT = first token - arrival; ITL = gap between consecutive tokens; E2E = last - arrival",
    "unused = sum over steps of held KV slots without a token / sum of held KV slots",
]
COLUMNS = [
    Column("rung", "rung"),
    Column("tokens_per_s", "tokens/s", "{:.1f}"),
    Column("ttft_p50_s", "TTFT p50 s", "{:.2f}"),
    Column("ttft_p99_s", "p99 s", "{:.2f}"),
    Column("itl_p50_s", "ITL p50 ms", milliseconds),
    Column("itl_p99_s", "p99 ms", milliseconds),
    Column("e2e_p50_s", "E2E p50 s", "{:.2f}"),
    Column("kv_held_bytes", "KV held MB", megabytes),
    Column("kv_unused", "unused", percent),
    Column("token_forwards", "token-forwards", "{:,}"),
    Column("differs", "differs", lambda found: ", ".join(found) or "none"),
]


def add_options(parser) -> None:
    arguments.add_workload(parser)
    arguments.add_model(parser)
    parser.add_argument(
        "--rungs",
        type=arguments.rungs,
        default=list(rungs.RUNGS),
        metavar="A,B,...",
        help=f"which ones (default: {','.join(rungs.RUNGS)})",
    )
    parser.add_argument("--plot", type=arguments.picture, metavar="FILE.png", help="draw it")


def run(options: Namespace, report: Report) -> None:
    """Measures every rung, prints table and notes, draws the picture."""
    asked, source = arguments.workload_of(options)
    about = f"{source}: {len(asked)} requests, up to {sum(r.max_tokens for r in asked)} tokens out"
    report.header(FORMULAS, options.seed, model=options.model, dtype="float32", workload=about)
    if any(r.priority or r.tenant or r.deadline_ms for r in asked):
        report.note("priority, tenant and deadline_ms are not used: all are equal here.")
    rows = climb(options.rungs, options.model, asked)
    report.table("rows", COLUMNS, rows)
    report.note(f"Tokens are compared with those of rung {rows[0]['rung']!r}.")
    report.note("Before it is measured, each rung answers one request of two tokens.")
    if options.plot:
        from labkit.measure.bench import ladder_plot

        ladder_plot.save(options.plot, rows, about)
        report.note(f"picture: {options.plot}")


def climb(names: Sequence[str], model: str, asked: Sequence[workload.WorkloadRequest]) -> list:
    """The rows of the rungs `names`, in that order, each compared with the first."""
    stages, rows, tokens = Stages(len(names), sys.stderr), [], {}
    loaded = on_transformers = None
    for name in names:
        with stages.stage(name) as tell:
            if on_transformers != (name in rungs.ON_TRANSFORMERS):
                tell("loading the model")
                loaded = None  # memory holds one model at a time
                gc.collect()
                loaded = rungs.load_for(name, model, "float32", "cpu")
                on_transformers = name in rungs.ON_TRANSFORMERS
            row, run = measure(name, loaded, workload.to_requests(asked, loaded), tell)
        tokens = tokens or run.token_ids
        rows.append(row | {"differs": differences(tokens, run.token_ids)})
    return rows


def measure(name: str, loaded, requests: Sequence[Request], tell: Tell) -> tuple[dict, Run]:
    """One rung on the workload: its row, and the run that it comes from."""
    longest = max(request.num_prompt_tokens + request.max_tokens for request in requests)
    room = {"max_model_len": longest} if name == "cached" and longest > 1024 else {}
    engine = rungs.make(name, loaded, **room)
    warm_up(engine, requests[0])
    if name in rungs.ON_TRANSFORMERS:
        with count_forwards(loaded.model) as counted:
            run = drive(engine, requests, tell)
        memory = {"kv_held_bytes": 0, "kv_unused": None}
    else:
        counted = watch(engine)
        run = drive(engine, requests, tell)
        memory = {
            "kv_held_bytes": counted.most_held * bytes_per_slot(engine),
            "kv_unused": counted.unused / counted.held,
        }
    work = {"token_forwards": counted.tokens, "passes": counted.passes}
    return {"rung": name, **figures(run), **memory, **work}, run


def figures(run: Run) -> dict:
    """Throughput and latency of a run."""
    latencies = run.latencies.values()
    ttft, gaps = [one.ttft for one in latencies], [gap for one in latencies for gap in one.itl]
    return {
        "tokens": run.num_tokens,
        "seconds": run.seconds,
        "tokens_per_s": run.tokens_per_s,
        "ttft_p50_s": percentile(ttft, 50),
        "ttft_p99_s": percentile(ttft, 99),
        "itl_p50_s": percentile(gaps, 50),
        "itl_p99_s": percentile(gaps, 99),
        "e2e_p50_s": percentile([one.e2e for one in latencies], 50),
    }


def differences(expected: dict[str, list[int]], found: dict[str, list[int]]) -> list[str]:
    """ "r3@17" for each request whose tokens differ, here from the 17th (counted from 0) on."""
    told = []
    for request_id, tokens in expected.items():
        pairs = zip_longest(tokens, found[request_id])
        first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
        if first is not None:
            told.append(f"{request_id}@{first}")
    return told
