"""What must hold when `bench soak` is over: from what was seen to a verdict on each promise."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from labkit.measure.bench.soak_answers import Result
from labkit.measure.bench.soak_asks import KILLS

SPARE_FDS = 4  # a log file, a lookup: more open at the end than at the start
MOST_GROWTH = 8e6  # bytes of memory for 1,000 requests, over the second half of a run
LEAST_FOR_GROWTH = 1000  # requests in that half; before, caches fill
ENOUGH_SILENT = 20  # clients that read nothing: fewer may all be refused
LINE = re.compile(r"^([\w:]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Sample:
    """Both processes at one moment. The engine's figures are None while there is none."""

    time: float  # seconds since the first
    ended: int  # requests
    open: int
    api_rss: int
    api_fds: int
    api_threads: int
    engine_pid: int | None = None
    engine_rss: int | None = None
    engine_fds: int | None = None
    engine_threads: int | None = None


@dataclass(frozen=True)
class Promise:
    """`kept` is None where the run was too short to tell."""

    text: str
    kept: bool | None
    told: str


@dataclass(frozen=True)
class Ending:
    """The server when all clients have gone, and after its end."""

    start: Sample
    samples: Sequence[Sample]
    last: Sample
    metrics: str  # text of /metrics after one more request
    state: dict  # of the live page
    open: Sequence[str]  # requests that are still listed
    exit_status: int | None
    left: Sequence[int]  # pids
    tracebacks: Sequence[str]


def totals(text: str, **labels: str) -> dict[str, float]:
    """Values of Prometheus' text, summed over all labels but those given."""
    found: dict[str, float] = {}
    for name, given, value in LINE.findall(text):
        if all(f'{key}="{wanted}"' in given for key, wanted in labels.items()):
            found[name] = found.get(name, 0.0) + float(value)
    return found


def promises(results: Sequence[Result], wanted: int, ending: Ending) -> list[Promise]:
    """Everything that must hold, in the order of the help."""
    return [
        *outcomes(results, wanted),
        *nothing_held(ending),
        *counters(results, ending),
        *files_and_threads(ending),
        *memory(ending),
        *the_end(ending),
    ]


def outcomes(results: Sequence[Result], wanted: int) -> list[Promise]:
    wrong = [one for one in results if not one.is_fine]
    ended = len(results) - sum(one.outcome == "hung" for one in wrong)
    faults = f"{len(wrong)} faults"
    if wrong:
        faults += f"; the first: {wrong[0].ask.kind}, {wrong[0].outcome}"
    return [
        Promise("every request ends", ended == wanted, f"{ended:,} of {wanted:,} ended"),
        Promise("with what the API promises", not wrong, faults),
    ]


def nothing_held(ending: Ending) -> list[Promise]:
    found = totals(ending.metrics)
    usage, state = found["vllm:kv_cache_usage_perc"], ending.state
    running, waiting = found["vllm:num_requests_running"], found["vllm:num_requests_waiting"]
    return [
        Promise("no request is open", not ending.open, f"{len(ending.open)} in /v1/requests"),
        Promise(
            "every block is free", usage == 0 and state["kv_usage"] == 0,
            f"of {state['num_blocks']} blocks {state['kv_usage']:.1%} held (/metrics {usage:.1%})",
        ),
        Promise(
            "the engine holds none", running == waiting == 0,
            f"{running:g} running, {waiting:g} waiting (/metrics)",
        ),
    ]  # fmt: skip


def counters(results: Sequence[Result], ending: Ending) -> list[Promise]:
    """The server's totals, among themselves and against what clients know for sure."""
    found = totals(ending.metrics)
    first, e2e, gaps = (
        found[f"vllm:{name}_seconds_count"]
        for name in ("time_to_first_token", "e2e_request_latency", "inter_token_latency")
    )
    made, kept = found["vllm:generation_tokens_total"], found["vllm:request_generation_tokens_sum"]
    sure, most, tokens = known(results)
    kills = sum(one.ask.kind == KILLS for one in results)
    restarts, dropped = found["labkit:engine_restarts_total"], found["labkit:streams_dropped_total"]
    silent = sum(one.outcome == "not read" for one in results)
    ended = found["vllm:request_success_total"]
    page = ending.state["finished"] + ending.state["failed"]
    return [
        Promise(
            "TTFT is counted once", sure <= first <= most and first == e2e <= ended,
            f"{first:,.0f}, E2E {e2e:,.0f}; clients saw {sure:,}, at most {most:,}",
        ),
        Promise(
            "each token is counted once", first + gaps == kept <= made and tokens <= kept,
            f"{first + gaps:,.0f} and {kept:,.0f} of {made:,.0f}; clients know of {tokens:,}",
        ),
        Promise("page and metrics agree", page == ended, f"{page:,} and {ended:,.0f} ended"),
        Promise(
            "who doesn't read is dropped", dropped > 0 if silent >= ENOUGH_SILENT else None,
            f"{dropped:g} dropped of {silent} that read nothing (others wait, or are refused)",
        ),
        Promise("an engine for each killed", restarts == kills, f"{restarts:g} for {kills}"),
    ]  # fmt: skip


def known(results: Sequence[Result]) -> tuple[int, int, int]:
    """Answers that surely have a token, those that may have one, and tokens surely made.

    The one request after all others, of one token, is among them.
    """
    asked = [one for one in results if one.ask.num_choices]
    sure = sum(one.ask.num_choices for one in asked if one.outcome == "answer")
    perhaps = sum(
        one.ask.num_choices * (one.retries + (one.outcome != "answer")) for one in asked
    )
    return sure + 1, sure + perhaps + 1, sum(one.num_tokens for one in asked) + 1


def files_and_threads(ending: Ending) -> list[Promise]:
    start, last = ending.start, ending.last
    threads = last.api_threads - start.api_threads
    found = []
    for who in ("api", "engine"):
        before, after = getattr(start, f"{who}_fds"), getattr(last, f"{who}_fds")
        kept = after is not None and after <= before + SPARE_FDS
        found.append(Promise(f"{who}: files are closed", kept, f"{before} open, then {after}"))
    return [
        *found,
        Promise(
            "no thread is left", threads <= most_threads(),
            f"{start.api_threads} of the API, then {last.api_threads}",
        ),
    ]  # fmt: skip


def most_threads() -> int:
    """As many as asyncio keeps for work beside its loop."""
    return min(32, (os.cpu_count() or 1) + 4)


def memory(ending: Ending) -> list[Promise]:
    found = []
    for who in ("api", "engine"):
        row = growth(ending.samples, who)
        kept = None
        if row["requests"] >= LEAST_FOR_GROWTH and row["per_1000"] is not None:
            kept = row["per_1000"] <= MOST_GROWTH
        grown = "-" if row["per_1000"] is None else f"{row['per_1000'] / 1e6:+.2f} MB"
        told = f"{grown} for 1,000 requests, over {row['requests']:,}"
        found.append(Promise(f"{who}: memory doesn't grow", kept, told))
    return found


def growth(samples: Sequence[Sample], who: str) -> dict:
    """Memory of one process in the first and last quarter of its run, and how it grew.

    The engine's is that of its longest life. Growth is the slope (Theil-Sen) over the second half.
    """
    mine = [one for one in samples if getattr(one, f"{who}_rss")]
    if who == "engine":
        mine = longest_life(mine)
    points = [(one.ended, getattr(one, f"{who}_rss")) for one in mine]
    if not points:
        return {"first": None, "last": None, "most": None, "per_1000": None, "requests": 0}
    quarter = max(len(points) // 4, 1)
    half = points[len(points) // 2 :]
    return {
        "first": median(rss for _, rss in points[:quarter]),
        "last": median(rss for _, rss in points[-quarter:]),
        "most": max(rss for _, rss in points),
        "per_1000": slope(half),
        "requests": half[-1][0] - half[0][0],
    }


def longest_life(samples: Sequence[Sample]) -> list[Sample]:
    lives: dict[int, list[Sample]] = {}
    for one in samples:
        lives.setdefault(one.engine_pid, []).append(one)
    return max(lives.values(), key=lambda life: life[-1].ended - life[0].ended, default=[])


def slope(points: Sequence[tuple[int, int]]) -> float | None:
    """Bytes for 1,000 requests: the median over all pairs, which a single step hardly moves."""
    points = points[:: max(len(points) // 300, 1)]
    slopes = [
        1000 * (y2 - y1) / (x2 - x1)
        for i, (x1, y1) in enumerate(points)
        for x2, y2 in points[i + 1 :]
        if x2 > x1
    ]
    return median(slopes) if slopes else None


def the_end(ending: Ending) -> list[Promise]:
    return [
        Promise(
            "SIGTERM ends all of it", ending.exit_status == 0 and not ending.left,
            f"exit status {ending.exit_status}, {len(ending.left)} processes left",
        ),
        Promise(
            "no error goes unhandled", not ending.tracebacks,
            f"{len(ending.tracebacks)} tracebacks in the log",
        ),
    ]  # fmt: skip
