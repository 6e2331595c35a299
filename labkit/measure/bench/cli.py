"""The command line of the benchmarks: options in, a report out, one line when it can't be."""

import sys
from argparse import Namespace

from labkit.console import SetupError
from labkit.environment import again
from labkit.measure.bench import (
    arguments,
    bottleneck,
    capacity,
    decode,
    ipc,
    kernel,
    ladder,
    offline,
    over_http,
    policies,
    router,
    scheduler,
    serve,
    soak,
    triton_server,
)
from labkit.measure.bench.report import Report

BENCHES = {
    "ladder": ladder,
    "offline": offline,
    "decode": decode,
    "scheduler": scheduler,
    "kernel": kernel,
    "policies": policies,
    "serve": serve,
    "http": over_http,
    "capacity": capacity,
    "router": router,
    "ipc": ipc,
    "bottleneck": bottleneck,
    "soak": soak,
    "triton-server": triton_server,
}
DESCRIPTION = """\
Measures on this machine, and prints the machine, the formula and the seed with every table.
--json FILE writes what was printed, with more digits; nothing is written when a run fails.
Other programs that run at the same time slow it down: close them for figures to be quoted."""


def parse(argv: list[str]) -> Namespace:
    """The options. Prints a help or one line about what is wrong, and exits, when it must."""
    parser = arguments.Parser(prog=again("bench"), description=DESCRIPTION)
    benches = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
    subs = {}
    for name, bench in BENCHES.items():
        subs[name] = sub = benches.add_parser(name, help=bench.SUMMARY, description=bench.HELP)
        sub.set_defaults(seed=0)  # a benchmark may have None, to tell whether one was given
        bench.add_options(sub)
        arguments.add_common(sub)
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        subs[options.bench].error(f"unrecognized arguments: {' '.join(unknown)}")
    check = getattr(BENCHES[options.bench], "contradiction", None)
    problem = check and check(options)
    if problem:
        subs[options.bench].error(problem)
    return options


def main(argv: list[str]) -> int:
    """Runs one benchmark; returns the exit status: 0, 1 when it failed, 130 after Ctrl-C."""
    options = parse(argv)
    report = Report(options.bench)
    try:
        BENCHES[options.bench].run(options, report)
        report.write(options.json)
    except (ValueError, OSError, MemoryError, RuntimeError, SetupError) as error:
        told = " ".join(str(error).split()) or type(error).__name__
        print(f"FAIL bench {options.bench}: {told}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; nothing was written.", file=sys.stderr)
        return 130
    return 0
