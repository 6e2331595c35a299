"""Latency of one request, computed from time stamps in one place for everybody.

The names are those of the serving world: TTFT, ITL, TPOT, E2E. All are seconds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Latency:
    """One request in time, in seconds."""

    ttft: float  # time to first token: first token - arrival
    itl: tuple[float, ...]  # inter-token latencies: the gaps between consecutive tokens
    tpot: float | None  # time per output token: (e2e - ttft) / (tokens - 1); None for one token
    e2e: float  # end to end: last token - arrival


def latency(arrival: float, token_times: Sequence[float]) -> Latency:
    """TTFT, ITL, TPOT and E2E of a request from when it arrived and when each token existed.

    `token_times` has one time stamp per output token, in order, on the same clock as
    `arrival`. The clock of a request starts when it arrives, not when it is first served:
    waiting in line is part of TTFT. TPOT averages over the tokens after the first, and a
    request with one token has none (`None`). ValueError when there is no token at all.
    """
    if not token_times:
        raise ValueError("0 time stamps; a latency needs at least one token")
    ttft = token_times[0] - arrival
    e2e = token_times[-1] - arrival
    itl = tuple(later - earlier for earlier, later in pairwise(token_times))
    tpot = (e2e - ttft) / len(itl) if itl else None
    return Latency(ttft, itl, tpot, e2e)
