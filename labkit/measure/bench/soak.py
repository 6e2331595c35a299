"""`bench soak`: thousands of requests of every kind, clients that misbehave, an engine killed."""

import platform
import sys
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence

from labkit import machine
from labkit.measure.bench import arguments, soak_asks, soak_promises
from labkit.measure.bench.drive import BenchError
from labkit.measure.bench.report import Column, Report, cpu_name, megabytes
from labkit.measure.bench.soak_answers import FINE, Result
from labkit.measure.bench.soak_promises import Ending, Promise

SUMMARY = "thousands of good, bad and impolite requests; the engine killed: what is left over?"
CLIENTS = "\n".join(
    f"  {kind:14}{share:3}%  {told}" for kind, (share, told) in soak_asks.KINDS.items()
)
HELP = f"""\
Starts a server of its own (model tiny, 16 slots, 160 blocks), sends it requests of every kind,
drawn from a seed, kills its engine as `kill -9` does, and then looks for what is left over.

{CLIENTS}

Good requests are chats and completions, streamed or not, of 1 to {soak_asks.MOST_TOKENS} tokens
(most are short), with n 1 to 3, stop strings, priorities, deadlines, tenants, and labels that
others have too. Most answers are marked: a bias makes the model say one letter only, so that a
lost token, or one of another request, is seen. What finds no engine (503) is sent again after
Retry-After, up to five times.

Promises: every request ends, with an answer or an error that the API promises; no request is
open, every block is free; the server's counters agree with each other and with what clients know;
files are closed, threads gone; memory doesn't grow; after SIGTERM no process is left; the log has
no traceback. The exit status is 1 when one is broken; --json FILE is written then, too.

  memory    RSS, sampled each second; the engine's is that of its longest life
  growth    median slope over all pairs of samples of the second half, for 1,000 requests"""
OUTCOMES = (
    Column("kind", "client"),
    Column("outcome", "outcome"),
    Column("count", "requests", "{:,}"),
    Column("retries", "sent again", "{:,}"),
    Column("fine", "promised", lambda fine: "yes" if fine else "NO"),
)
MEMORY = (
    Column("process", "process"),
    Column("first", "RSS, first quarter (MB)", megabytes),
    Column("last", "last quarter", megabytes),
    Column("most", "most", megabytes),
    Column("per_1000", "growth for 1,000 requests (MB)", lambda x: f"{x / 1e6:+.2f}"),
    Column("requests", "over requests", "{:,}"),
)
PROMISES = (
    Column("text", "promise"),
    Column("verdict", "kept"),
    Column("told", "seen"),
)
VERDICTS = {True: "yes", False: "NO", None: "too short to tell"}
MOST_FAULTS = 20  # that are told, and kept


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--requests", type=arguments.whole(10), default=5000, metavar="N", help="default: 5000"
    )
    parser.add_argument(
        "--concurrency", type=arguments.whole(1, 1000), default=48, metavar="C",
        help="clients, each with one request at a time (default: 48)",
    )  # fmt: skip
    parser.add_argument(
        "--kills", type=arguments.whole(0, 5), default=2, metavar="K",
        help="of the engine, at random moments (default: 2)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=arguments.whole(1, 3600), default=120, metavar="S",
        help="a request that has no end within S seconds hangs (default: 120)",
    )  # fmt: skip
    parser.add_argument(
        "--plot", type=arguments.picture, metavar="FILE",
        help="memory, files and open requests over time, as .png, .svg or .pdf",
    )  # fmt: skip


def contradiction(options: Namespace) -> str | None:
    if sys.platform == "win32":
        return "it needs signals and descriptors of POSIX; run it in WSL, on Linux or on macOS"
    return None


def run(options: Namespace, report: Report) -> None:
    """Prints outcomes, memory and promises. Raises BenchError that names what is broken."""
    import asyncio

    from labkit.measure.bench import load, soak_play

    header(options, report)
    problem = load.raise_file_limit(2 * options.concurrency)
    if problem:
        report.note(problem)
    results, ending = asyncio.run(
        soak_play.soak(
            options.requests, options.concurrency, options.kills, options.seed, options.timeout
        )
    )
    kept = soak_promises.promises(results, options.requests, ending)
    tell(report, results, ending, kept)
    if options.plot:
        from labkit.measure.bench import soak_plot

        soak_plot.save(options.plot, ending.samples, f"bench soak, {options.requests:,} requests")
        report.note(f"picture: {options.plot}")
    broken = [promise for promise in kept if promise.kept is False]
    if broken:
        report.write(options.json)
        told = "; ".join(f"{promise.text} ({promise.told})" for promise in broken)
        raise BenchError(f"not kept: {told}")


def header(options: Namespace, report: Report) -> None:
    about = {"cpu": cpu_name(), "cores": machine.cores(), "python": platform.python_version()}
    facts = {
        "requests": f"{options.requests:,} by {options.concurrency} clients, {options.kills} kills",
        "server": " ".join(soak_asks.OPTIONS),
        "seed": options.seed,
    }
    report.keep(bench=report.bench, machine=about, **facts)
    report.say(f"machine   {about['cpu']}, {about['cores']:g} cores, Python {about['python']}")
    for name, value in facts.items():
        report.say(f"{name:9} {value}")
    report.say()


def tell(
    report: Report, results: Sequence[Result], ending: Ending, kept: Sequence[Promise]
) -> None:
    """Prints and keeps the tables, and the first faults."""
    report.table("outcomes", OUTCOMES, outcome_rows(results))
    memory = [
        {"process": who} | soak_promises.growth(ending.samples, who) for who in ("api", "engine")
    ]
    report.table("memory", MEMORY, memory)
    faults = [
        {"number": one.ask.number, "kind": one.ask.kind, "outcome": one.outcome, "told": one.told}
        for one in results
        if not one.is_fine
    ]
    for fault in faults[:MOST_FAULTS]:
        report.say(f"fault: request {fault['number']} ({fault['kind']}): {fault['outcome']}: "
                   f"{fault['told']}")  # fmt: skip
    for line in ending.tracebacks[:MOST_FAULTS]:
        report.say(f"log: {line[:2000]}")
    rows = [
        {"text": one.text, "kept": one.kept, "verdict": VERDICTS[one.kept], "told": one.told}
        for one in kept
    ]
    report.table("promises", PROMISES, rows)
    samples = [vars(one) for one in ending.samples]
    report.keep(faults=faults[:MOST_FAULTS], log=[*ending.tracebacks], samples=samples)


def outcome_rows(results: Sequence[Result]) -> list[dict]:
    """A row for each kind of client and outcome, in the order of the help."""
    order = [*soak_asks.KINDS, soak_asks.KILLS]
    counts = Counter((one.ask.kind, one.outcome) for one in results)
    retries = Counter()
    for one in results:
        retries[one.ask.kind, one.outcome] += one.retries
    return [
        {
            "kind": kind, "outcome": outcome, "count": count, "retries": retries[kind, outcome],
            "fine": outcome in FINE,
        }
        for (kind, outcome), count in sorted(
            counts.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0][1])
        )
    ]  # fmt: skip
