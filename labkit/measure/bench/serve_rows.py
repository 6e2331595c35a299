"""Rows of `bench serve` out of what was asked and what came back. Pure: no server, no clock."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from labkit.measure.bench.drive import percentile
from labkit.measure.bench.report import Column, milliseconds, percent
from labkit.measure.slo import SLO
from labkit.measure.workload import WorkloadRequest

if TYPE_CHECKING:  # it needs a package, and a help is told before any is installed
    from labkit.measure.bench.answers import Answer

PERCENTS = (50, 90, 99)
FIGURES = {"TTFT": "ttft", "ITL": "itl", "TPOT": "tpot", "E2E": "e2e"}


def microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:,.0f}"


WHO = [Column("server", "server"), Column("load", "load")]
MET = [Column("slo_met", "SLO met", percent), Column("goodput", "goodput/s", "{:.2f}")]


def two(key: str, title: str) -> list[Column]:
    return [
        Column(f"{key}_p50_s", f"{title} p50 ms", milliseconds),
        Column(f"{key}_p99_s", "p99", milliseconds),
    ]


ROWS = [
    *WHO,
    Column("requests", "requests", "{:,}"),
    Column("failed", "failed", "{:,}"),
    Column("tokens_per_s", "tokens/s", "{:,.1f}"),
    *MET,
    *two("ttft", "TTFT"),
    *two("itl", "ITL"),
    *two("e2e", "E2E"),
]
LATENCY = [
    *WHO,
    Column("what", "ms"),
    Column("mean_s", "mean", milliseconds),
    *(Column(f"p{p}_s", f"p{p}", milliseconds) for p in PERCENTS),
]
CLASSES = [
    *WHO,
    Column("class", "class"),
    Column("requests", "requests", "{:,}"),
    Column("failed", "failed", "{:,}"),
    *MET,
    *two("ttft", "TTFT"),
    *two("tpot", "TPOT"),
    *two("e2e", "E2E"),
]
BOTH_SIDES = [
    *WHO,
    Column("queue_mean_server_s", "queue server ms", milliseconds),
    *(
        column
        for title, key in (("TTFT", "ttft"), ("ITL", "itl"), ("E2E", "e2e"))
        for column in (
            Column(f"{key}_mean_s", f"{title} client ms", milliseconds),
            Column(f"{key}_mean_server_s", "server", milliseconds),
        )
    ),
    Column("preemptions", "preemptions", "{:,.0f}"),
    Column("cached_tokens", "cached tokens", "{:,.0f}"),
    Column("api_cpu_per_token_s", "API CPU us/token", microseconds),
    Column("engine_cpu_per_token_s", "engine", microseconds),
]
CLIENT = [
    *WHO,
    Column("seconds", "seconds", "{:.1f}"),
    Column("prompt_tokens", "tokens in", "{:,}"),
    Column("tokens", "tokens out", "{:,}"),
    Column("tokens_per_chunk", "tokens/event", "{:.2f}"),
    Column("lag_p99_s", "sent late p99 ms", milliseconds),
    Column("client_cpu", "client CPU", percent),
]
FAILURES = [
    *WHO,
    Column("class", "class"),
    Column("kind", "failure"),
    Column("count", "count", "{:,}"),
    Column("message", "the first says"),
]


@dataclass(frozen=True)
class Outcome:
    """One run against one server: what was asked, what came back, what it cost the client."""

    asked: Sequence[WorkloadRequest]
    answers: Sequence["Answer"]
    cpu_seconds: float
    server: dict | None = None  # what the server says of the same time

    @property
    def seconds(self) -> float:
        """The wall time: from the first arrival to the last token, or failure."""
        last = max(
            one.end if one.latency is None else one.arrival + one.latency.e2e
            for one in self.answers
        )
        return last - min(one.arrival for one in self.answers)


Pairs = Sequence[tuple[WorkloadRequest, "Answer"]]


def meets(asked: WorkloadRequest, answer: "Answer", slo: SLO) -> bool:
    """Whether a whole answer came within every limit and its own deadline; equal is within."""
    if answer.latency is None:
        return False
    deadline = None if asked.deadline_ms is None else asked.deadline_ms / 1000
    return slo.within(deadline).is_met(answer.latency)


def figures(pairs: Pairs, slo: SLO, seconds: float) -> dict:
    """Counts, goodput, and mean and percentiles of each latency. Failures have no latency."""
    whole = [answer.latency for _, answer in pairs if answer.latency is not None]
    columns = {
        "ttft": [one.ttft for one in whole],
        "itl": [gap for one in whole for gap in one.itl],
        "tpot": [one.tpot for one in whole if one.tpot is not None],
        "e2e": [one.e2e for one in whole],
    }
    found = {"requests": len(pairs), "failed": len(pairs) - len(whole)}
    has_limit = bool(slo) or any(asked.deadline_ms is not None for asked, _ in pairs)
    met = sum(meets(asked, answer, slo) for asked, answer in pairs)
    found["slo_met"] = met / len(pairs) if has_limit else None
    found["goodput"] = met / seconds if has_limit and seconds else None
    for name, values in columns.items():
        ordered = sorted(values)
        found[f"{name}_mean_s"] = fmean(values) if values else None
        found |= {f"{name}_p{p}_s": percentile(ordered, p) for p in PERCENTS}
    return found


def row(who: dict, outcomes: Sequence[Outcome], slo: SLO) -> dict:
    """The runs of one server under one load as one row; their wall times are added up."""
    pairs = pairs_of(outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    whole = [answer for _, answer in pairs if answer.failure is None]
    tokens = sum(answer.num_tokens for answer in whole)
    chunks = sum(len(answer.seen_times) for answer in whole)
    rates = [
        sum(one.num_tokens for one in outcome.answers if one.failure is None) / outcome.seconds
        for outcome in outcomes
        if outcome.seconds
    ]
    cpu = sum(outcome.cpu_seconds for outcome in outcomes)
    lags = [answer.sent - answer.arrival for _, answer in pairs]
    return who | figures(pairs, slo, seconds) | of_server(outcomes) | {
        "seconds": seconds,
        "prompt_tokens": sum(answer.usage.prompt_tokens for answer in whole if answer.usage),
        "tokens": tokens,
        "tokens_per_s": tokens / seconds if seconds else None,
        "tokens_per_s_of_runs": rates,
        "requests_per_s": len(whole) / seconds if seconds else None,
        "tokens_per_chunk": tokens / chunks if chunks else None,
        "lag_p99_s": percentile(lags, 99),
        "client_cpu": cpu / seconds if seconds else None,
    }  # fmt: skip


def pairs_of(outcomes: Sequence[Outcome]) -> list[tuple[WorkloadRequest, "Answer"]]:
    return [pair for one in outcomes for pair in zip(one.asked, one.answers, strict=True)]


def of_server(outcomes: Sequence[Outcome]) -> dict:
    """The server's own figures: counts added up, means weighted by its requests."""
    told = [outcome.server for outcome in outcomes]
    if not told or None in told:
        return {}
    weights = [max(one["requests"], 0) for one in told]
    found = {"requests_server": sum(weights)}
    for name in ("ttft", "itl", "e2e", "queue"):
        values = [one[f"{name}_mean_s"] for one in told]
        if None not in values and sum(weights):
            mean = sum(v * w for v, w in zip(values, weights, strict=True)) / sum(weights)
            found[f"{name}_mean_server_s"] = mean
    for name in ("preemptions", "cached_tokens", "tokens", "api_cpu_s", "engine_cpu_s"):
        values = [one[name] for one in told]
        found[name] = None if None in values else sum(values)
    tokens = found.pop("tokens")
    for name in ("api", "engine"):
        seconds = found.pop(f"{name}_cpu_s")
        told = tokens and seconds is not None
        found[f"{name}_cpu_per_token_s"] = seconds / tokens if told else None
    return found


def class_of(asked: WorkloadRequest) -> str:
    """A tenant is a class; without one the priority is."""
    return asked.tenant or f"priority {asked.priority}"


def class_rows(who: dict, outcomes: Sequence[Outcome], slo: SLO) -> list[dict]:
    """A row for each class, in order of priority; none where all requests are of one class."""
    pairs, seconds = pairs_of(outcomes), sum(outcome.seconds for outcome in outcomes)
    order = {class_of(asked): asked.priority for asked, _ in pairs}
    if len(order) < 2:
        return []
    return [
        who | {"class": name} | figures([p for p in pairs if class_of(p[0]) == name], slo, seconds)
        for name in sorted(order, key=lambda name: (order[name], name))
    ]


def failure_rows(who: dict, outcomes: Sequence[Outcome]) -> list[dict]:
    """How often each failure came in each class, and what the first of them says."""
    failed = [pair for pair in pairs_of(outcomes) if pair[1].failure is not None]
    counts, says = Counter(), {}
    for asked, answer in failed:
        key = class_of(asked), answer.failure
        counts[key] += 1
        says.setdefault(key, answer.message)
    return [
        who | {"class": name, "kind": kind, "count": count, "message": says[name, kind] or None}
        for (name, kind), count in counts.most_common()
    ]


def latency_rows(rows: Sequence[dict]) -> list[dict]:
    """The latencies of `rows`, one a line."""
    keys = ("mean_s", *(f"p{p}_s" for p in PERCENTS))
    return [
        {"server": one["server"], "load": one["load"], "what": what}
        | {key: one[f"{name}_{key}"] for key in keys}
        for one in rows
        for what, name in FIGURES.items()
    ]


def request_rows(who: dict, outcomes: Sequence[Outcome]) -> list[dict]:
    """One row for each request, for whoever wants to look closer."""
    found = []
    for asked, answer in pairs_of(outcomes):
        seen = answer.latency
        found.append(who | {
            "id": asked.id, "class": class_of(asked), "arrival_s": answer.arrival,
            "sent_s": answer.sent, "tokens": answer.num_tokens, "failure": answer.failure,
            "ttft_s": seen and seen.ttft, "tpot_s": seen and seen.tpot, "e2e_s": seen and seen.e2e,
        })  # fmt: skip
    return found
