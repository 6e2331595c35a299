"""Rows of `bench bottleneck`: figures of a run, and which of them give a cause away. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import fmean

from labkit.measure.bench.answers import Answer
from labkit.measure.bench.drive import percentile
from labkit.measure.bench.report import Column, percent

MANY = 3  # figures are named for each cause
CHANGED = 1.3  # less than this factor is no change
CLEARLY = 1.25  # times the logarithm of another cause's factor
AS_BUSY, FEWER = 0.9, 0.7  # of the baseline's: still as busy, and yet fewer tokens/s


def ms(seconds: float) -> str:
    return f"{1000 * seconds:,.1f}"


def whole_percent(share: float) -> str:
    return f"{100 * share:.0f}%"


COLUMNS = [
    Column("cause", "cause"),
    Column("busy", "device busy", percent),
    Column("mfu", "MFU", percent),
    Column("tokens_per_s", "tokens/s", "{:,.0f}"),
    Column("tokens_per_step", "tokens/step", "{:.1f}"),
    Column("step_s", "busy ms/step", ms),
    Column("queue_p50_s", "queue p50 ms", ms),
    Column("queue_p99_s", "p99", ms),
    Column("ttft_p50_s", "TTFT p50 ms", ms),
    Column("ttft_p99_s", "p99", ms),
    Column("itl_p50_s", "ITL p50 ms", ms),
    Column("itl_p99_s", "p99", ms),
    Column("kv_mean", "KV mean", whole_percent),
    Column("kv_peak", "peak", whole_percent),
    Column("preemptions", "preempted", "{:,.0f}"),
    Column("api_cpu", "API core", whole_percent),
    Column("engine_cpu", "engine core", whole_percent),
]


@dataclass
class Seen:
    """One run of `seconds`: answers whole or not, queue times, samples of the KV cache's use,
    and the server's totals before it and `server_seconds` later."""

    seconds: float
    server_seconds: float
    answers: list[Answer]
    queues: list[float]
    kv: list[float]
    before: dict[str, float]
    after: dict[str, float]
    client_cpu_s: float = 0.0

    def growth(self, name: str) -> float:
        return self.after.get(name, 0.0) - self.before.get(name, 0.0)


def row(who: dict, seen: Seen, flops_per_token: float, peak_flops: float) -> dict:
    """A request without a token at the end counts with the time that it has waited until then."""
    times = [(one.arrival, [t for t in one.chunk_times if t <= seen.seconds])
             for one in seen.answers]  # fmt: skip
    ttft = [(tokens[0] if tokens else seen.seconds) - arrival for arrival, tokens in times]
    gaps = [b - a for _, tokens in times for a, b in zip(tokens, tokens[1:], strict=False)]
    steps, made = seen.growth("labkit:engine_steps_total"), seen.growth(TOKENS_OUT)
    busy, watched = seen.growth("labkit:device_busy_seconds_total"), seen.server_seconds
    computed = made + seen.growth("vllm:prompt_tokens_total") - seen.growth(CACHED)
    return who | {
        "requests": len(times),
        "unanswered": sum(not tokens for _, tokens in times),
        "busy": min(busy / watched, 1.0),
        "mfu": computed * flops_per_token / peak_flops / watched,
        "step_s": busy / steps if steps else None,
        "tokens_per_s": sum(len(tokens) for _, tokens in times) / seen.seconds,
        "tokens_per_step": made / steps if steps else None,
        "queue_p50_s": percentile(seen.queues, 50),
        "queue_p99_s": percentile(seen.queues, 99),
        "ttft_p50_s": percentile(ttft, 50),
        "ttft_p99_s": percentile(ttft, 99),
        "itl_p50_s": percentile(gaps, 50),
        "itl_p99_s": percentile(gaps, 99),
        "kv_mean": fmean(seen.kv) if seen.kv else None,
        "kv_peak": max(seen.kv, default=None),
        "preemptions": seen.growth("vllm:num_preemptions_total"),
        "api_cpu": seen.growth("api_cpu") / watched,
        "engine_cpu": seen.growth("engine_cpu") / watched,
        "client_cpu": seen.client_cpu_s / seen.seconds,
    }


TOKENS_OUT, CACHED = "vllm:generation_tokens_total", "vllm:prefix_cache_hits_total"


@dataclass(frozen=True)
class Figure:
    """What is compared with the baseline; values below `floor` count as that much."""

    key: str
    title: str
    floor: float
    show: Callable[[float], str] = field(default=lambda value: f"{value:,.0f}")


def in_ms(seconds: float) -> str:
    return f"{ms(seconds)} ms"


FIGURES = [
    Figure("busy", "device busy", 0.02, whole_percent),
    Figure("tokens_per_s", "tokens/s", 1.0),
    Figure("tokens_per_step", "tokens a step", 0.1, lambda value: f"{value:.1f}"),
    Figure("step_s", "the device's time for a step", 0.0001, in_ms),
    Figure("queue_p50_s", "queue p50", 0.005, in_ms),
    Figure("ttft_p50_s", "TTFT p50", 0.005, in_ms),
    Figure("itl_p50_s", "ITL p50", 0.001, in_ms),
    Figure("itl_p99_s", "ITL p99", 0.001, in_ms),
    Figure("kv_peak", "KV peak", 0.02, whole_percent),
    Figure("preemptions", "preemptions", 1.0),
    Figure("api_cpu", "the API's core", 0.05, whole_percent),
    Figure("engine_cpu", "the engine's core", 0.05, whole_percent),
]


def changes(row: dict, base: dict) -> list[tuple[Figure, float]]:
    """Figures that changed, those that changed most first, with the factor."""
    found = []
    for one in FIGURES:
        now, then = row[one.key], base[one.key]
        if now is not None and then is not None:
            found.append((one, max(now, one.floor) / max(then, one.floor)))
    changed = [pair for pair in found if max(pair[1], 1 / pair[1]) >= CHANGED]
    return sorted(changed, key=lambda pair: -abs(log(pair[1])))


def own(row: dict, rows: Sequence[dict]) -> list[str]:
    """The figures that this row has clearly changed more than any other, the same way."""
    base, others = rows[0], [one for one in rows[1:] if one is not row]
    found = []
    for figure, factor in changes(row, base):
        rivals = [dict(changes(one, base)).get(figure, 1.0) for one in others]
        if all(log(factor) * log(rival) <= 0 or CLEARLY * abs(log(rival)) < abs(log(factor))
               for rival in rivals):  # fmt: skip
            found.append(figure.title)
    return found[:MANY]


def clue(row: dict, rows: Sequence[dict]) -> str:
    """What gives this cause away, in words; the first of `rows` is the baseline."""
    base = rows[0]
    told = [
        f"{one.title} {one.show(base[one.key])} -> {one.show(row[one.key])} "
        f"({'×' if factor > 1 else '÷'} {max(factor, 1 / factor):.1f})"
        for one, factor in changes(row, base)[:MANY]
    ]
    same = [one.title for one in FIGURES if one.key in ("busy", "tokens_per_s")
            and one not in [changed for changed, _ in changes(row, base)]]  # fmt: skip
    more = own(row, rows) if len(rows) > 2 else []
    return (
        f"{row['cause']}: {row['switch']}. Most changed: {', '.join(told) or 'nothing'}"
        + (f"; unchanged: {' and '.join(same)}" if same else "")
        + (f". More than any other cause here: {', '.join(more)}" if more else "") + "."
    )  # fmt: skip


def conclusions(rows: Sequence[dict], base: dict) -> list[str]:
    """Where the device stood still, and where its being busy hides that little is done."""
    others = [one for one in rows if one is not base]
    idle = [one for one in others if one["busy"] < AS_BUSY * base["busy"]]
    hidden = [
        one for one in others
        if one not in idle and one["tokens_per_s"] < FEWER * base["tokens_per_s"]
    ]  # fmt: skip
    told = []
    if idle:
        told.append(
            f"The device stands still more than at the baseline ({base['busy']:.0%} busy) with: "
            + ", ".join(f"{one['cause']} ({one['busy']:.0%})" for one in idle)
            + ". API and engine are processes of their own in every row: to keep a device busy it "
            "takes more."
        )
    if hidden:
        told.append(
            "As busy as at the baseline, and yet with fewer tokens/s: "
            + ", ".join(
                f"{one['cause']} ({one['busy']:.0%} busy, "
                f"{one['tokens_per_s'] / base['tokens_per_s']:.0%} of the tokens/s)"
                for one in hidden
            )
            + ". There \"utilization\" misleads: a step counts as busy whatever it computes."
        )
    return told
