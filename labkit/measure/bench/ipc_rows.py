"""Rows of `bench ipc` out of answers and counters, and what they say of separation. Pure."""

from collections.abc import Sequence

from labkit.measure.bench.answers import Answer, seconds_of
from labkit.measure.bench.drive import percentile
from labkit.measure.bench.report import Column, percent

EQUAL, EVEN = 0.1, "made no difference"  # closer than this nobody wins
AHEAD = 2  # steps: from here on tokens come to their clients in bursts
BUSY_CLIENT = 0.6  # of a core: from here on the client is a part of what is measured


def ms(seconds: float) -> str:
    return f"{1000 * seconds:,.2f}"


def us(seconds: float) -> str:
    return f"{1e6 * seconds:,.1f}"


WHO = [
    Column("device", "device"), Column("label", "steps"), Column("batch", "streams", "{:,}"),
    Column("home", "engine in"),
]  # fmt: skip
COLUMNS = [
    *WHO,
    Column("tokens_per_s", "tokens/s", "{:,.0f}"),
    Column("itl_p50_s", "ITL p50 ms", ms),
    Column("itl_p99_s", "p99", ms),
    Column("ttft_p50_s", "TTFT p50 ms", ms),
    Column("busy", "device busy", percent),
    Column("step_s", "busy ms/step", ms),
    Column("api_cpu_per_token_s", "API CPU us/token", us),
    Column("engine_cpu_per_token_s", "engine", us),
    Column("cpu_per_token_s", "both", us),
    Column("delivery_s", "delivery us", us),
]
MESSAGES = [
    Column("batch", "tokens a step", "{:,}"),
    Column("bytes_per_token", "bytes/token", "{:,.1f}"),
    Column("encode_s_per_token", "encode us/token", lambda s: f"{1e6 * s:.2f}"),
    Column("decode_s_per_token", "decode us/token", lambda s: f"{1e6 * s:.2f}"),
]


def row(who: dict, answers: Sequence[Answer], client_cpu_s: float, before: dict, after: dict):
    """One run: what its clients saw, and what grew on the server meanwhile."""

    def growth(name: str) -> float | None:
        return after[name] - before.get(name, 0.0) if name in after else None

    def share(value: float | None, of: float | None) -> float | None:
        return value / of if value is not None and of else None

    latencies = [answer.latency for answer in answers]
    tokens = sum(answer.num_tokens for answer in answers)
    seconds = seconds_of(answers)
    gaps = [gap for one in latencies for gap in one.itl]
    busy, steps = growth("labkit:device_busy_seconds_total"), growth("labkit:engine_steps_total")
    api, engine = growth("api_cpu"), growth("engine_cpu")
    apart = engine is not None
    delivered = "labkit:token_delivery_seconds"
    return who | {
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_s": tokens / seconds,
        "ttft_p50_s": percentile([one.ttft for one in latencies], 50),
        "ttft_p99_s": percentile([one.ttft for one in latencies], 99),
        "itl_p50_s": percentile(gaps, 50),
        "itl_p99_s": percentile(gaps, 99),
        "busy": share(busy, seconds),
        "step_s": share(busy, steps),
        "tokens_per_step": share(tokens, steps),
        "api_cpu_per_token_s": api / tokens if apart else None,
        "engine_cpu_per_token_s": share(engine, tokens),
        "cpu_per_token_s": (api + (engine or 0.0)) / tokens,
        "delivery_s": share(growth(f"{delivered}_sum"), growth(f"{delivered}_count")),
        "client_cpu": client_cpu_s / seconds,
    }


def steps_ahead(row: dict) -> float:
    """How many steps the engine does while the tokens of one are on their way to the API."""
    if not (row["delivery_s"] and row["tokens_per_step"]):
        return 0.0
    return row["delivery_s"] / (row["seconds"] * row["tokens_per_step"] / row["tokens"])


def bursts(rows: Sequence[dict]) -> str | None:
    """Which rows had an engine that ran ahead of the API; None if none had."""
    found = [one for one in rows if steps_ahead(one) > AHEAD]
    if not found:
        return None
    cases = "; ".join(f"{one['device']}, {streams(one['batch'])}, {one['home']}" for one in found)
    return (
        f"The engine ran more than {AHEAD} steps ahead of the API in {len(found)} of {len(rows)} "
        f"rows ({cases}): tokens came in bursts there, so the median gap says little; look at p99."
    )


def verdict(rows: Sequence[dict]) -> dict | None:
    """How a process does against in-process, from the rows of one device and batch; None if one
    of the two wasn't measured."""
    by_home = {one["home"]: one for one in rows}
    if not {"process", "in-process"} <= by_home.keys():
        return None
    apart, together = by_home["process"], by_home["in-process"]
    factor = apart["tokens_per_s"] / together["tokens_per_s"]
    outcome = "won" if factor > 1 + EQUAL else "lost" if factor < 1 - EQUAL else EVEN
    thread = by_home.get("thread")
    return {
        "case": f"{apart['device']}, {streams(apart['batch'])}",
        "outcome": outcome,
        "factor": factor,
        "thread_factor": thread and thread["tokens_per_s"] / together["tokens_per_s"],
        "busy": (together["busy"], apart["busy"]),
        "itl_s": (together["itl_p50_s"], apart["itl_p50_s"]),
        "step_s": apart["step_s"],
        "api_s": api_work(apart),
        "delivery_s": apart["delivery_s"],
    }


def api_work(row: dict) -> float | None:
    """CPU seconds of the API for the tokens of one step."""
    per_token, tokens = row["api_cpu_per_token_s"], row["tokens_per_step"]
    return None if per_token is None or tokens is None else per_token * tokens


def streams(batch: int) -> str:
    return "1 stream" if batch == 1 else f"{batch:,} streams"


def sentence(found: dict) -> str:
    """A verdict in words: all figures are of the rows."""
    told = f"{found['case']}: a process {found['outcome']}, × {found['factor']:.2f} the tokens/s"
    if found["thread_factor"]:
        told += f" of in-process (a thread × {found['thread_factor']:.2f})"
    else:
        told += " of in-process"
    told += f"; ITL p50 {ms(found['itl_s'][0])} -> {ms(found['itl_s'][1])} ms"
    if None not in found["busy"]:
        told += f", device busy {found['busy'][0]:.0%} -> {found['busy'][1]:.0%}"
    if None not in (found["api_s"], found["step_s"], found["delivery_s"]):
        told += (
            f". For each step the API works {ms(found['api_s'])} ms, the device "
            f"{ms(found['step_s'])} ms; the way between them takes {ms(found['delivery_s'])} ms"
        )
    return told + "."


def conclusion(found: Sequence[dict]) -> str:
    """The answer to the question, counted over the verdicts."""
    parts = []
    for outcome, words in (
        ("won", "won"), ("lost", "lost"), (EVEN, f"changed less than {EQUAL:.0%}")
    ):  # fmt: skip
        cases = [one["case"] for one in found if one["outcome"] == outcome]
        if cases:
            parts.append(f"{words} in {len(cases)} ({'; '.join(cases)})")
    counted = "1 case" if len(found) == 1 else f"{len(found)} cases"
    return (
        f"Is process separation always best? Of {counted}, measured by tokens/s, it "
        + ", ".join(parts) + "."
    )  # fmt: skip


def groups(rows: Sequence[dict]) -> list[list[dict]]:
    """The rows of each device and batch, in order of appearance."""
    found: dict[tuple, list[dict]] = {}
    for one in rows:
        found.setdefault((one["device"], one["batch"]), []).append(one)
    return [*found.values()]
