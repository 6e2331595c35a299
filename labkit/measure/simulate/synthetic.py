"""Requests out of a seed that look like Azure's traces: the same gaps and lengths, no row of
theirs.

What is kept of the traces are the quantiles below, counted from their rows (AzurePublicDataset,
LLM inference 2023, CC-BY 4.0). Gaps, prompts and outputs are drawn apart from each other: how
one depends on another, and when bursts come, is not imitated.
"""

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean, median, pstdev

from labkit.measure.simulate.requests import Arrival

SHARES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 100)  # percent
DECK = 1000  # draws that have every share of a table once


@dataclass(frozen=True)
class Shape:
    """Quantiles at `SHARES`: seconds between arrivals, tokens of prompts, tokens generated.

    The last gap is not the longest one (217 and 4.3 s) but what gives the traces' variation.
    """

    gaps: tuple[float, ...]
    prompts: tuple[float, ...]
    outputs: tuple[float, ...]


SHAPES = {
    "code": Shape(
        (
            1e-5, 2e-5, 9e-5, 2.1e-4, 2.08e-3, 0.0638, 0.104, 0.273, 0.401, 2.21, 9.98, 79.2,
            330,
        ),
        (3, 17, 75, 147, 578, 1469, 2745, 5188, 7303, 7436, 7436, 7437, 7437),
        (6, 6, 6, 7, 9, 13, 24, 55, 90, 252, 359, 825, 1899),
    ),
    "conv": Shape(
        (
            1e-5, 5.5e-4, 6.3e-3, 0.0161, 0.0483, 0.118, 0.247, 0.421, 0.565, 0.89, 1.03, 1.41,
            1.8,
        ),
        (2, 29, 181, 207, 396, 1020, 1189, 2735, 4083, 4142, 4831, 6179, 14050),
        (7, 16, 41, 54, 85, 129, 395, 424, 451, 601, 643, 954, 1000),
    ),
}  # fmt: skip

PUBLISHED = {  # what the traces' description says of them
    "code": {"rate": 2.57, "gap_cv": 13.0, "median_prompt": 1469, "median_output": 13},
    "conv": {"rate": 5.53, "gap_cv": 1.09, "median_prompt": 1020, "median_output": 129},
}


def synthetic(
    kind: str, num_requests: int, rate: float | None = None, seed: int = 0
) -> Iterator[Arrival]:
    """`num_requests` arrivals like those of the trace `kind`, "code" or "conv".

    At `rate` requests/s on average, that of the trace if it is None (2.57 and 5.53). ValueError
    for another kind. The first arrives at 0.
    """
    if kind not in SHAPES:
        raise ValueError(f"synthetic {kind!r} is not known; accepted are {', '.join(SHAPES)}")
    shape, draw = SHAPES[kind], random.Random(f"{kind} {seed}")
    gaps = deal(shape.gaps, draw)
    prompts, outputs = deal(shape.prompts, draw), deal(shape.outputs, draw)
    factor = 1 / (rate or PUBLISHED[kind]["rate"]) / fmean(cards(shape.gaps))
    time = 0.0
    for _ in range(num_requests):
        yield Arrival(time, round(next(prompts)), round(next(outputs)))
        time += next(gaps) * factor


def cards(quantiles: tuple[float, ...]) -> list[float]:
    """`DECK` values with the quantiles of a table, evenly over all shares."""
    return [quantile(quantiles, 100 * (card + 0.5) / DECK) for card in range(DECK)]


def deal(quantiles: tuple[float, ...], draw: random.Random) -> Iterator[float]:
    """Draws from a shuffled deck: so that rare values come as often as they should among few
    draws too. The deck is shuffled again when it is used up."""
    deck = cards(quantiles)
    while True:
        draw.shuffle(deck)
        yield from deck


def quantile(quantiles: tuple[float, ...], share: float) -> float:
    """The value at `share` percent, between two entries of the table."""
    place = next(i for i, most in enumerate(SHARES[1:], start=1) if share <= most)
    low, high = quantiles[place - 1], quantiles[place]
    part = (share - SHARES[place - 1]) / (SHARES[place] - SHARES[place - 1])
    return low * (high / low) ** part


def figures(arrivals: Iterable[Arrival]) -> dict[str, float]:
    """What arrivals look like: requests/s, the coefficient of variation of the gaps, lengths.

    ValueError for fewer than 3, which have no variation.
    """
    arrivals = list(arrivals)
    if len(arrivals) < 3:
        raise ValueError(f"{len(arrivals)} arrivals; at least 3 are needed to compare gaps")
    gaps = [b.time - a.time for a, b in zip(arrivals, arrivals[1:], strict=False)]
    mean = fmean(gaps)
    return {
        "rate": 1 / mean if mean else math.inf,
        "gap_cv": pstdev(gaps) / mean if mean else math.nan,
        "median_prompt": median(a.num_prompt_tokens for a in arrivals),
        "median_output": median(a.num_output_tokens for a in arrivals),
        "mean_prompt": fmean(a.num_prompt_tokens for a in arrivals),
        "mean_output": fmean(a.num_output_tokens for a in arrivals),
    }


def differences(found: dict[str, float], wanted: dict[str, float]) -> dict[str, float]:
    """By which share each figure is above (or below, negative) what is wanted."""
    return {name: found[name] / value - 1 for name, value in wanted.items() if name in found}
