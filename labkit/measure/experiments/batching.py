"""The experiments of notebook 02: a sweep over batch sizes, and what a static batch wastes.

Token slots are what goes through the model: rows times columns, summed over all forward passes.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from labkit.engine.request import Request
from labkit.measure.batching import BatchPoint, BatchRun
from labkit.measure.bench.drive import Run, drive, percentile, warm_up


def conversations(
    seed: int = 0,
    num_requests: int = 16,
    prompt: tuple[int, int] = (6, 96),
    output: tuple[int, int] = (2, 48),
) -> list[Request]:
    """Requests whose lengths differ as those of conversations do: most short, some very long.

    `prompt` and `output` are (least, most) tokens. Lengths are log-normal, as traces of chat
    services come close to, and cut to that range; the tokens themselves say nothing. All arrive
    at 0 and run to exactly `max_tokens`.
    """
    draw = random.Random(seed)

    def length(least: int, most: int) -> int:
        middle = (least * most) ** 0.5
        return min(max(round(middle * draw.lognormvariate(0, 1)), least), most)

    return [
        Request(
            f"r{number:02}",
            [draw.randrange(100, 2000) for _ in range(length(*prompt))],
            max_tokens=length(*output),
            ignore_eos=True,
        )
        for number in range(num_requests)
    ]


def batches(requests: Sequence[Request], batch_size: int) -> list[list[Request]]:
    """The batches that a static engine makes of requests that wait in this order."""
    return [
        list(requests[start : start + batch_size]) for start in range(0, len(requests), batch_size)
    ]


@dataclass(frozen=True)
class Slots:
    """Where the token slots of a static engine without a cache go."""

    useful: int = 0  # tokens of requests that have not ended
    padding: int = 0  # in their rows, up to the longest
    finished: int = 0  # whole rows of requests that have ended

    @property
    def total(self) -> int:
        return self.useful + self.padding + self.finished

    @property
    def wasted_share(self) -> float:
        """Padding and finished rows, over all."""
        return (self.padding + self.finished) / self.total


def slots_of(requests: Sequence[Request], batch_size: int) -> Slots:
    """Counted from the lengths alone, for requests that run to exactly `max_tokens`."""
    useful = padding = finished = 0
    for batch in batches(requests, batch_size):
        for step in range(max(request.max_tokens for request in batch)):
            lengths = [r.num_prompt_tokens + min(step, r.max_tokens) for r in batch]
            width = max(lengths)
            for request, length in zip(batch, lengths, strict=True):
                if step < request.max_tokens:
                    useful += length
                    padding += width - length
                else:
                    finished += width
    return Slots(useful, padding, finished)


def by_length(requests: Sequence[Request]) -> list[Request]:
    """Sorted by how much a request asks for: like stands beside like, and the line is jumped."""
    return sorted(requests, key=lambda r: (r.max_tokens, r.num_prompt_tokens))


def sweep(
    make_engine: Callable[[int], object],
    requests: Sequence[Request],
    sizes: Sequence[int],
    memory_of: Callable[[object], float] = lambda engine: 0.0,
) -> tuple[list[BatchPoint], list[BatchRun]]:
    """The same requests through a fresh engine of each batch size, measured.

    `make_engine(batch_size)` makes it, `memory_of(engine)` says how many bytes it holds for its
    requests. A request of two tokens warms it up.
    """
    points, runs = [], []
    for size in sizes:
        engine = make_engine(size)
        warm_up(engine, requests[0])
        run = drive(engine, requests)
        points.append(point_of(size, run, memory_of(engine)))
        runs.append(BatchRun(size, run.seconds, tuple(run.latencies.values())))
    return points, runs


def point_of(batch_size: int, run: Run, memory_bytes: float) -> BatchPoint:
    """A run in the few numbers of a `BatchPoint`. TPOT stands in where no request has a gap."""
    latencies = list(run.latencies.values())
    gaps = [gap for one in latencies for gap in one.itl]
    return BatchPoint(
        batch_size,
        run.tokens_per_s,
        ttft_s=percentile([one.ttft for one in latencies], 95),
        itl_s=percentile(gaps, 95) or 0.0,
        e2e_s=percentile([one.e2e for one in latencies], 95),
        memory_bytes=memory_bytes,
    )


def goodput(run: BatchRun, ttft_limit: float = inf, tpot_limit: float = inf) -> float:
    """Requests per second that met both limits, as `best_batch` compares it."""
    met = [
        one
        for one in run.latencies
        if one.ttft <= ttft_limit and (one.tpot is None or one.tpot <= tpot_limit)
    ]
    return len(met) / run.seconds
