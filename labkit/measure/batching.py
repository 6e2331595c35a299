"""What a batch size costs and brings: a sweep as points, and the best one under an SLO.

Goodput is the number of requests that met every limit, per second of the run: a request that came
too late counts for nothing, however many tokens it had. The word as it is used here is from Zhong
et al., "DistServe" (OSDI 2024).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from labkit.measure.metrics import Latency


@dataclass(frozen=True)
class BatchPoint:
    """One batch size of a sweep, in the few numbers that a picture shows."""

    batch_size: int
    tokens_per_s: float
    ttft_s: float  # 95th percentile over the requests, seconds; waiting in line is part of it
    itl_s: float  # 95th percentile over all gaps between tokens, seconds
    e2e_s: float  # 95th percentile over the requests, seconds
    memory_bytes: float


@dataclass(frozen=True)
class BatchRun:
    """The same requests once through an engine of one batch size."""

    batch_size: int
    seconds: float  # from the first arrival to the last token
    latencies: tuple[Latency, ...]  # one for each request, those that came too late included


def best_batch(
    runs: Sequence[BatchRun], ttft_limit: float = inf, tpot_limit: float = inf
) -> int | None:
    """The batch size with the largest goodput under an SLO.

    `runs` has one run for each batch size, in any order. A request meets the SLO when its TTFT
    is at most `ttft_limit` and its TPOT at most `tpot_limit` (seconds, infinite for no limit); a
    request of one token has no TPOT (None) and can't miss that limit. The goodput of a run is
    how many of its requests met the SLO, divided by its `seconds`.

    Among equals the smaller batch wins: it needs less memory. None when no request of any run
    met the SLO.
    """
    best, best_goodput = None, 0.0
    for run in sorted(runs, key=lambda run: run.batch_size):
        in_time = [one for one in run.latencies if one.ttft <= ttft_limit]
        met = [one for one in in_time if one.tpot is None or one.tpot <= tpot_limit]
        goodput = len(met) / run.seconds
        if goodput > best_goodput:
            best, best_goodput = run.batch_size, goodput
    return best
