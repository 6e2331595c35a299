"""`bench ipc`: what it costs, and what it brings, to give the engine a process of its own."""

import asyncio
import sys
import tempfile
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from labkit.console import Stages
from labkit.measure.bench import arguments, paced_devices
from labkit.measure.bench.drive import Tell
from labkit.measure.bench.paced_devices import Device
from labkit.measure.bench.report import Report
from labkit.measure.simulate.options import number
from labkit.measure.simulate.requests import Arrival

SUMMARY = "the engine in the API's loop, in a thread, in a process: tokens/s, CPU, latency"
HELP = """\
Starts the real server with its engine in three places and asks it over HTTP, with few streams
and with many:

  in-process  engine steps in the API's own event loop: while one lasts, nothing is sent
  thread      beside it in the same process; both need the one interpreter lock
  process     in a process of its own; tokens come as msgpack over ZeroMQ

Devices: "cpu" is this processor with the real model (cpu:NAME another one), measured. A card
(H100, A100, L4, ...) is paced: it waits, using no CPU, as long as its data sheet says that a
step takes; API, scheduler and messages are real. CARD:8b stands for a model of that size
(1b, 8b, 32b). On "cpu" the engine's computing and the API fight for the same cores, so that
little can be gained there; on a card the CPU is free while it waits.

What to expect, with s seconds of device and a seconds of API work for each step:
  in-process   a step takes about s + a
  process      about max(s, a), and `delivery` more until a token is out
so separation brings most where s and a are alike, nothing where one of them is far larger, and
costs where both are tiny. It also lets an engine die alone, which no row here shows.

  tokens/s       output tokens / (last token - first arrival), clients in a closed loop
  ITL, TTFT      as the client sees them: gap between tokens; first token - arrival
  device busy    seconds in which the device computed / the same time (on "cpu": whole steps)
  CPU us/token   CPU seconds of the API (process; its main thread for "thread") and of the engine
                 (process; all other threads) / output tokens. "-": can't be told apart
  delivery       mean of: the API has the step's message - its first token existed in the engine
  bytes, encode, decode    of the step's message by itself, as both processes do it; no HTTP

An engine apart that is faster than the API runs ahead: steps wait in line (delivery grows), and
the API sends the tokens of several at once, which is cheaper for each. A line says where.

Answers are made as long as it takes to run for --seconds, and equally long for all three.
The client is on this machine too; a line says so when it takes much of a core. The first token
of a request costs more: prompts have 8 tokens here. About two and a half minutes.

  python3 -m labkit bench ipc
  python3 -m labkit bench ipc --devices cpu:tiny,L4:8b --streams 1,16,64 --json ipc.json"""

FORMULAS = [
    "tokens/s = output tokens / (last token - first arrival); percentiles by nearest rank",
    "device busy = seconds the device computed / that time; CPU us/token = CPU seconds / tokens",
    "delivery = the API has a step's message - its first token existed in the engine (mean)",
]
HOMES = ("in-process", "thread", "process")
PROMPT_TOKENS, MOST_TOKENS, LEAST_TOKENS, TRIAL_TOKENS = 8, 128, 8, 6


def add_options(parser) -> None:
    arguments.add_model(parser)
    default = "cpu,cpu:tiny,H100,H100:8b"
    parser.add_argument(
        "--devices", type=paced_devices.devices, default=paced_devices.devices(default),
        metavar="D,...", help=f"cpu, a card, each with :MODEL or :SIZE (default: {default})",
    )  # fmt: skip
    parser.add_argument(
        "--streams", type=arguments.wholes, default=[1, 64], metavar="N,...",
        help="how many answers at once (default: 1,64)",
    )  # fmt: skip
    parser.add_argument(
        "--homes", type=homes, default=list(HOMES), metavar="H,...",
        help=f"where the engine lives (default: {','.join(HOMES)})",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=number(0), default=3.0, metavar="S", help="about so long a row (3)"
    )


def homes(text: str) -> list[str]:
    for name in text.split(","):
        if name not in HOMES:
            raise ArgumentTypeError(f"home {name!r} is not known; accepted: {', '.join(HOMES)}")
    return list(dict.fromkeys(text.split(",")))


def run(options: Namespace, report: Report) -> None:
    """Measures every device, home and number of streams; prints tables and what they say."""
    from labkit.measure.bench import ipc_messages, ipc_rows

    facts = {"model": options.model, "seconds": f"about {options.seconds:g} a row"}
    report.header(FORMULAS, options.seed, **facts)
    for device in options.devices:
        report.note(device.about() + ".")
    report.say()
    stages, rows = Stages(len(options.devices) * len(options.homes) + 1, sys.stderr), []
    with stages.stage("messages alone"):
        alone = {batch: ipc_messages.costs(batch) for batch in options.streams}
    for device in options.devices:
        lengths: dict[int, tuple[int, int]] = {}  # the same for all homes, found at the first
        for home in options.homes:
            with stages.stage(f"{device.name}, {home}") as tell:
                rows += measure(device, home, options, lengths, tell)
    rows.sort(key=lambda one: (*place_of(one, options), options.homes.index(one["home"])))
    for one in rows:
        one |= alone[one["batch"]] if one["home"] == "process" else {}
    report.table("rows", ipc_rows.COLUMNS, rows)
    messages = [{"batch": batch} | found for batch, found in alone.items()]
    report.table("messages", ipc_rows.MESSAGES, messages)
    tell_notes(report, rows)


def place_of(row: dict, options: Namespace) -> tuple[int, int]:
    names = [device.name for device in options.devices]
    return names.index(row["device"]), options.streams.index(row["batch"])


def measure(
    device: Device, home: str, options: Namespace, lengths: dict, tell: Tell
) -> list[dict]:
    """One server: a row for each number of streams."""
    from labkit.measure.bench import ipc_rows, light_client, served

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="labkit-bench-")))
        told = [*device.server_options(options.model, folder), "--seed", str(options.seed)]
        told += ["--max-num-seqs", str(max(options.streams)), "--log-format", "json"]
        server, found = stack.enter_context(served.serving(told, home, tell=tell)), []
        for batch in options.streams:
            tell(ipc_rows.streams(batch))
            trial = asked(batch, 1, TRIAL_TOKENS, options.seed + 1)
            answers, _ = asyncio.run(light_client.closed_loop(server.port, trial, batch))
            if batch not in lengths:
                lengths[batch] = fitting(answers, options.seconds)
            tokens, rounds = lengths[batch]
            requests = asked(batch, rounds, tokens, options.seed)
            before = server.totals()
            answers, cpu = asyncio.run(light_client.closed_loop(server.port, requests, batch))
            who = {"device": device.name, "label": device.label, "home": home, "batch": batch}
            found.append(ipc_rows.row(who, answers, cpu, before, server.totals()))
    return found


def asked(batch: int, rounds: int, tokens: int, seed: int):
    """The requests of one run: prompts of random token ids, no two alike."""
    from labkit.measure.bench import sending

    arrivals = [Arrival(0.0, PROMPT_TOKENS, tokens) for _ in range(batch * rounds)]
    return sending.of_lengths(arrivals, seed, as_text=False)


def fitting(answers: Sequence, seconds: float) -> tuple[int, int]:
    """Tokens of an answer, and answers of a client, to run for about `seconds`.

    By the mean gap, not by the median: where tokens come in bursts, most gaps are nearly 0.
    """
    from labkit.measure.bench.drive import percentile

    step = max(percentile([one.latency.tpot for one in answers], 50), 1e-5)
    tokens = min(max(round(seconds / step), LEAST_TOKENS), MOST_TOKENS)
    return tokens, max(round(seconds / (tokens * step)), 1)


def tell_notes(report: Report, rows: Sequence[dict]) -> None:
    """Where separation won and where it lost, and what makes figures less than they seem."""
    from labkit.measure.bench import ipc_rows

    found = [one for group in ipc_rows.groups(rows) if (one := ipc_rows.verdict(group))]
    report.keep(verdicts=found)
    for one in found:
        report.note(ipc_rows.sentence(one))
    if found:
        report.note(ipc_rows.conclusion(found))
    if told := ipc_rows.bursts(rows):
        report.note(told)
    busy = [one for one in rows if one["client_cpu"] > ipc_rows.BUSY_CLIENT]
    if busy:
        most = max(one["client_cpu"] for one in busy)
        report.note(
            f"In {len(busy)} of {len(rows)} rows the client took more than "
            f"{ipc_rows.BUSY_CLIENT:.0%} of a core (up to {most:.0%}): it shares this machine, so "
            "a server alone would be faster there."
        )
    report.note("Devices whose steps are modelled have no text of their own: tokens are made up.")
