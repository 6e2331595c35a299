"""Capacity: the highest load at which a server still meets its SLO, found by trying."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Trial(NamedTuple):
    """One load that was tried, in requests per second."""

    rate: float
    is_met: bool


@dataclass(frozen=True)
class Capacity:
    """What a search found, in requests per second."""

    rate: float  # the highest that met the SLO; 0.0 when not even the lowest did
    fails_at: float | None  # the lowest that did not; None when the highest asked for still met it
    trials: tuple[Trial, ...]  # in the order in which they were made


def capacity(
    meets: Callable[[float], bool], low: float, high: float, tolerance: float = 0.05
) -> Capacity:
    """The highest rate between `low` and `high` (requests/s) that meets the SLO.

    `meets(rate)` puts that load on the server, and says whether the SLO was met; a trial is dear,
    so none is made twice. From `low` the rate doubles until it fails or `high` has met the SLO.
    Between the highest that met it and the lowest that failed the search then halves the ratio
    (it tries their geometric mean) until they are within a factor of 1 + `tolerance`.

    0.0 when `low` fails. ValueError unless 0 < low <= high < infinity and tolerance > 0. A binary
    search for the highest passing rate is how MLPerf Inference finds a server's result, too.
    """
    check_search(low, high, tolerance)
    trials: list[Trial] = []
    good, rate = 0.0, low
    while True:
        trials.append(Trial(rate, meets(rate)))
        if not trials[-1].is_met:
            break
        good = rate
        if rate == high:
            return Capacity(good, None, tuple(trials))
        rate = min(2 * rate, high)
    bad = rate
    while good and bad > good * (1 + tolerance):
        middle = math.sqrt(good * bad)
        trials.append(Trial(middle, meets(middle)))
        good, bad = (middle, bad) if trials[-1].is_met else (good, middle)
    return Capacity(good, bad, tuple(trials))


def confirmed(
    found: Capacity, meets: Callable[[float], bool], runs: int, tolerance: float = 0.05
) -> Capacity:
    """The same search, its edge tried again: trials on a real server are noisy.

    The rate must meet the SLO in `runs` trials in a row, of which the search made one. Where it
    fails, a rate lower by a factor of 1 + `tolerance` is tried in its place, and 0.0 is left when
    that is below the lowest one of the search. MLPerf's LoadGen lowers its result like this, too.
    """
    trials, rate, fails_at, in_a_row = [*found.trials], found.rate, found.fails_at, 1
    while rate and in_a_row < runs:
        trials.append(Trial(rate, meets(rate)))
        in_a_row += 1
        if not trials[-1].is_met:
            rate, fails_at, in_a_row = rate / (1 + tolerance), rate, 0
            rate = rate if rate >= trials[0].rate else 0.0
    return Capacity(rate, fails_at, tuple(trials))


def interval(num_met: int, num_requests: int, z: float = 1.96) -> tuple[float, float]:
    """Where the true share lies with 95% confidence, when so many of so many were seen to meet.

    Wilson's interval (1927), which holds for shares near 1 and for few requests, too. It takes
    the requests to be independent; those of one queue are not, so it is rather too narrow.
    ValueError unless 0 <= num_met <= num_requests and num_requests > 0.
    """
    if not 0 <= num_met <= num_requests or num_requests == 0:
        raise ValueError(f"num_met is {num_met} of {num_requests} requests; 0 to all are possible")
    share, spread = num_met / num_requests, z * z / num_requests
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def check_search(low: float, high: float, tolerance: float) -> None:
    """Raises ValueError for a range that can't be searched."""
    if not 0 < low <= high < math.inf:
        raise ValueError(f"low is {low} and high {high}; 0 < low <= high < infinity is needed")
    if not tolerance >= 1e-6:
        raise ValueError(f"tolerance is {tolerance}; at least 1e-6 is needed to come to an end")
