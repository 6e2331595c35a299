"""Where the engine lives, compared: in the API's loop, in a thread, in a process. `bench ipc`'s
rows at the size of a notebook."""

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from labkit.measure.bench import ipc, ipc_rows, light_client, paced_devices
from labkit.measure.bench.served import Served
from labkit.measure.experiments.processes_http import run_beside, servers

HOMES = ipc.HOMES
QUIET = ("--log-format", "json")


@contextmanager
def homes(options: Sequence[str], slots: int, names: Sequence[str] = HOMES):
    """The same server with its engine in each of the homes `names`: {home: Served}."""
    told = [*options, "--max-num-seqs", str(slots), *QUIET]
    with servers({name: (name, told) for name in names}) as running:
        yield running


@contextmanager
def paced_homes(card: str, slots: int, model: str = "smollm2-135m"):
    """`homes` on a paced device, CARD:SIZE as `bench ipc` has them ("H100:8b"). `model` brings the
    tokenizer. Steps are modelled, everything else is real."""
    device = paced_devices.sized(card)
    with (
        TemporaryDirectory(prefix="labkit-") as folder,
        homes(device.server_options(model, Path(folder)), slots) as running,
    ):
        yield running


def measure(
    running: Mapping[str, Served], streams: int, tokens: int, label: str, rounds: int = 2
) -> list[dict]:
    """A row of `bench ipc` for each home: so many streams of so many tokens at once.

    The homes take turns, and of its rounds each keeps the one with the most tokens/s: what else
    the machine does is not theirs.
    """
    best: dict[str, dict] = {}
    for server in running.values():
        play(server, streams, 6, 1)
    for number in range(rounds):
        for home, server in running.items():
            before = server.totals()
            answers, cpu = play(server, streams, tokens, 2 + number)
            who = {"device": label, "label": label, "home": home, "batch": streams}
            row = ipc_rows.row(who, answers, cpu, before, server.totals())
            if home not in best or row["tokens_per_s"] > best[home]["tokens_per_s"]:
                best[home] = row
    return [*best.values()]


def compare_homes(
    options: Sequence[str], loads: Sequence[tuple[int, int, int]], label: str
) -> list[list[dict]]:
    """The rows of `measure` for each load: (streams, tokens, rounds).

    Each server holds the model, so no more than two are up at once: first those that are
    compared, in the loop and in a process, which take turns; then the thread.
    """
    found: list[list[dict]] = [[] for _ in loads]
    for names in (("in-process", "process"), ("thread",)):
        with homes(options, max(streams for streams, *_ in loads), names) as running:
            for rows, (streams, tokens, rounds) in zip(found, loads, strict=True):
                rows += measure(running, streams, tokens, label, rounds)
    return [sorted(rows, key=lambda row: HOMES.index(row["home"])) for rows in found]


def play(server: Served, streams: int, tokens: int, seed: int):
    """Answers, and the CPU seconds of the clients."""
    asked = ipc.asked(streams, 1, tokens, seed)
    return run_beside(light_client.closed_loop(server.port, asked, streams))


def factor(rows: Sequence[dict], of: str = "process", to: str = "in-process") -> float:
    """The tokens/s of one home as a multiple of another's."""
    by_home = {row["home"]: row["tokens_per_s"] for row in rows}
    return by_home[of] / by_home[to]


def delivery_us(row: Mapping) -> float:
    """Microseconds from a token's being made to the API's having it."""
    return 1e6 * (row["delivery_s"] or 0.0)


def table(rows: Sequence[dict]) -> str:
    """The rows as lines of text."""
    head = f"{'engine':12}{'tokens/s':>10}{'ITL p50 ms':>12}{'p99':>8}{'device busy':>13}"
    lines = [head + f"{'delivery us':>13}"]
    for row in rows:
        lines.append(
            f"{row['home']:12}{row['tokens_per_s']:10,.0f}{1e3 * row['itl_p50_s']:12.2f}"
            f"{1e3 * row['itl_p99_s']:8.1f}{row['busy']:13.0%}{delivery_us(row):13,.0f}"
        )
    return "\n".join(lines)
