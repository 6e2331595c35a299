"""Puts a workload through an engine and writes down when each token existed."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil

from labkit.engine.request import Request
from labkit.measure.metrics import Latency, latency

Tell = Callable[[str], None]  # shows how far the work has come


class BenchError(ValueError):
    """A benchmark that can't be run as asked; the message names the value and the remedy."""


@dataclass
class Run:
    """One workload through one engine. Times are seconds from the start of the run."""

    arrivals: dict[str, float]  # when each request was due, by its id
    token_times: dict[str, list[float]]
    token_ids: dict[str, list[int]]
    step_seconds: list[float] = field(default_factory=list)
    late: dict[str, str] = field(default_factory=dict)  # why a request has missed its deadline

    @property
    def num_tokens(self) -> int:
        return sum(map(len, self.token_ids.values()))

    @property
    def seconds(self) -> float:
        """From the first arrival to the last token."""
        last = max(t[-1] for t in self.token_times.values() if t)
        return last - min(self.arrivals.values())

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def latencies(self) -> dict[str, Latency]:
        """Of all requests that have a token."""
        times = self.token_times.items()
        return {name: latency(self.arrivals[name], t) for name, t in times if t}


def drive(
    engine,
    requests: Sequence[Request],
    tell: Tell = lambda text: None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Run:
    """Adds each of `requests` when it arrives, and steps `engine` until the last has ended.

    `request.arrival` counts from the start of the run, on the engine's `clock`. A request that
    arrives during a step is added after it; its own clock runs from when it was due.
    `requests` stay as they are, for the next run. One that can't meet its deadline is told in
    `Run.late`; BenchError when one fails.
    """
    line = deque(sorted(map(fresh, requests), key=lambda r: r.arrival))
    names, total = [r.request_id for r in requests], sum(r.max_tokens for r in requests)
    run = Run(
        {r.request_id: r.arrival for r in line},
        {name: [] for name in names},
        {name: [] for name in names},
    )
    done, start = 0, clock()
    while line or engine.has_unfinished():
        while line and start + line[0].arrival <= clock():
            request = line.popleft()
            request.arrival += start
            if request.deadline is not None:
                request.deadline += start
            try:
                engine.add(request)
            except ValueError as error:
                if request.deadline is None:
                    raise
                run.late[request.request_id] = str(error)
        if not engine.has_unfinished():
            sleep(max(start + line[0].arrival - clock(), 0))
            continue
        begin = clock()
        events = engine.step()
        run.step_seconds.append(clock() - begin)
        for event in events:
            if event.finish_reason == "deadline":
                run.late[event.request_id] = event.error
                continue
            if event.token_id is None:
                raise BenchError(f"request {event.request_id!r} failed: {event.error}")
            run.token_times[event.request_id].append(event.time - start)
            run.token_ids[event.request_id].append(event.token_id)
        done += len(events)
        tell(bar(done, total))
    return run


def fresh(request: Request) -> Request:
    """The same request, not yet begun."""
    return Request(
        request.request_id,
        request.prompt_token_ids,
        request.max_tokens,
        request.ignore_eos,
        request.arrival,
        priority=request.priority,
        tenant=request.tenant,
        deadline=request.deadline,
    )


def warm_up(engine, request: Request) -> None:
    """Two tokens of one request, before anything is measured: much is prepared only once."""
    drive(engine, [Request("warm-up", request.prompt_token_ids, max_tokens=2)])
    forget_prefixes(engine)


def forget_prefixes(engine) -> None:
    """Every run begins with an empty prefix cache, so that runs can be compared."""
    scheduler = getattr(engine, "scheduler", None)
    if scheduler is not None:
        scheduler.pool.clear_cache()


def bar(done: int, total: int, width: int = 20) -> str:
    """How far it is, as a picture and as numbers."""
    filled = min(width * done // max(total, 1), width)
    return f"[{'#' * filled}{'.' * (width - filled)}] {done} of {total} tokens"


def percentile(values: Sequence[float], percent: float) -> float | None:
    """The smallest of `values` that at least `percent` % of them don't exceed (nearest rank).

    None when there are no values.
    """
    ordered = sorted(values)
    return ordered[max(ceil(len(ordered) * percent / 100), 1) - 1] if ordered else None
