"""`bench http`: what the server takes of its engine's speed, and what an open stream costs."""

import sys
from argparse import Namespace
from statistics import median

from labkit.console import Stages
from labkit.measure import workload
from labkit.measure.bench import arguments
from labkit.measure.bench.drive import BenchError
from labkit.measure.bench.report import Column, Report, milliseconds, percent

SUMMARY = "the server beside its engine alone: tokens/s, added TTFT, streams that wait"
HELP = """\
The engine as a library, in this process, and the same engine behind the real server, asked over
HTTP by clients on this machine. Prefix caching is off for both; both take turns.

throughput  All requests of a workload at once; over HTTP that many clients, streamed, as text,
            so that tokenizing and detokenizing are in it.
TTFT        One request at a time, with nothing else to do: from token ids to the first token, and
            from text to the first event. `tiny` shows the server's own part, since its engine
            takes almost no time.
waiting     The gaps between the tokens of one stream, while no others are open and while many
            are, which wait for their turn (--max-num-seqs 1). The same positions of the same
            answer; those that wait are all there before the first gap that counts.

  tokens/s   output tokens / (last token - first arrival)
  added      p50 of the TTFT over HTTP - p50 of the engine's, the same prompts in turn
  API CPU    CPU seconds of the API process / output tokens

Server, engine and clients share the machine's cores, so that the share of the engine's speed that
is left is smaller than with clients elsewhere; with `tiny`, whose steps take almost no time, it is
that of the API alone. About two minutes.

  python3 -m labkit bench http
  python3 -m labkit bench http --workload mix64.jsonl --runs 5 --json http.json"""

FEW_GAPS = 50
FORMULAS = [
    "tokens/s = output tokens / (last token - first arrival)",
    "kept = tokens/s over HTTP / tokens/s of the engine alone, medians of the runs",
    "added = p50 of the TTFT over HTTP - p50 of the engine's; percentiles by nearest rank",
]
SPEED = [
    Column("who", "who"), Column("run", "run"), Column("tokens", "tokens", "{:,}"),
    Column("seconds", "seconds", "{:.2f}"), Column("tokens_per_s", "tokens/s", "{:.1f}"),
    Column("api_cpu_per_token_s", "API CPU us/token", lambda seconds: f"{1e6 * seconds:,.0f}"),
]  # fmt: skip
TTFT = [
    Column("model", "model"), Column("requests", "requests"),
    *(Column(f"{who}_p{p}_s", f"{title} p{p} ms", lambda seconds: f"{1000 * seconds:.2f}")
      for who, title in (("alone", "engine"), ("http", "HTTP")) for p in (50, 99)),
    Column("added_p50_s", "added p50", lambda seconds: f"{1000 * seconds:.2f}"),
]  # fmt: skip
WAITING = [
    Column("waiting", "streams that wait", "{:,}"), Column("run", "run"),
    Column("gaps", "gaps"), Column("itl_p50_s", "ITL p50 ms", milliseconds),
    Column("itl_p99_s", "p99", milliseconds),
]  # fmt: skip


def add_options(parser) -> None:
    arguments.add_workload(parser, built_in="64 built-in requests, 8 to 96 tokens out")
    arguments.add_model(parser)
    arguments.add_dtype(parser)
    for name, default, least, about in (
        ("runs", 3, 1, "of throughput and of waiting streams, in turn"),
        ("ttft-requests", 40, 0, "of each model; 0: none"),
        ("waiting", 500, 0, "streams that wait; 0: none"),
        ("output-tokens", 192, 8, "of the stream that the others wait for"),
    ):
        parser.add_argument(
            f"--{name}", type=arguments.whole(least), default=default, metavar="N",
            help=f"{about} (default: {default})",
        )  # fmt: skip


def run(options: Namespace, report: Report) -> None:
    """Measures the three parts; prints a table of each."""
    from labkit.measure.bench import load
    from labkit.measure.bench import over_http_runs as runs

    if options.workload:
        asked, source = arguments.workload_of(options)
    else:
        asked, source = workload.synthetic(options.seed, 64), f"built in, from seed {options.seed}"
    told = load.raise_file_limit(max(options.waiting, len(asked)) + 1)
    if told:
        raise BenchError(told)
    about = {"workload": f"{source}: {len(asked)} requests, all at once", "dtype": options.dtype}
    report.header(FORMULAS, options.seed, model=options.model, **about)
    stages = Stages(1 + bool(options.ttft_requests) + bool(options.waiting), sys.stderr)
    with (
        stages.stage("throughput") as tell,
        runs.both(options.model, options.dtype, len(asked), tell) as pair,
    ):
        rows = runs.speed(pair, asked, options.runs, tell)
    report.table("throughput", SPEED, rows)
    report.note(f"Over HTTP {percent(kept(rows))} of the engine's tokens/s are kept.\n")
    if options.ttft_requests:
        rows = []
        with stages.stage("TTFT at idle") as tell:
            for model in dict.fromkeys([options.model, "tiny"]):
                with runs.both(model, options.dtype, 1, tell) as pair:
                    rows.append(runs.ttft(pair, options.ttft_requests, options.seed, tell))
        report.table("ttft", TTFT, rows)
    if options.waiting:
        with stages.stage(f"{options.waiting} streams that wait") as tell:
            rows = runs.waiting(options, tell)
        report.table("waiting", WAITING, rows)
        factor = typical(rows, "itl_p50_s", waiting=options.waiting) / typical(
            rows, "itl_p50_s", waiting=0
        )
        report.note(f"With {options.waiting:,} waiting, the ITL is {factor:.2f} times as long.")
        if (fewest := min(row["gaps"] for row in rows)) < FEW_GAPS:
            report.note(f"That is out of {fewest} gaps: give more --output-tokens to be sure.")


def kept(rows: list[dict]) -> float:
    alone = typical(rows, "tokens_per_s", who="engine alone")
    return typical(rows, "tokens_per_s", who="HTTP") / alone


def typical(rows: list[dict], key: str, **where) -> float:
    """The median of a column over the rows that say `where`."""
    return median(row[key] for row in rows if where.items() <= row.items())
