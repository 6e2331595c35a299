"""The options that say what is promised and what it costs, the same in `bench` and `simulate`."""

import math
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable
from dataclasses import replace

from labkit.measure.slo import PRESETS, SLO

DEFAULT_SHARE = 99.0  # percent, as MLPerf has it
LIMITS = {  # of `SLO`, each as --slo-NAME-ms
    "ttft": "time to first token",
    "itl": "every gap between two of its tokens",
    "tpot": "mean gap",
    "e2e": "the whole answer",
}


def rates(text: str) -> tuple[float, float]:
    """LOW,HIGH in requests a second."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = 0.0
    if not 0 < low <= high < 1e9:
        raise ArgumentTypeError(f"{text!r} is no LOW,HIGH with 0 < LOW <= HIGH, such as 0.1,100")
    return low, high


def within(what: str, least: float, most: float, above: bool = False) -> Callable[[str], float]:
    """A number from `least` (or only above it) to `most`; `what` says so in an error."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most or (above and value == least):
            raise ArgumentTypeError(f"{text!r} is no {what}; give one")
        return value

    return read


percentage = within("percentage above 0 and up to 100", 0, 100, above=True)
dollars = within("price in USD an hour from 0 to 1e9", 0, 1e9)
trial_seconds = within("number of seconds from 1 to 86,400", 1, 86_400)
milliseconds = within("number of ms above 0 and up to 1e9", 0, 1e9, above=True)


def add_limits(group) -> None:
    group.add_argument(
        "--slo", choices=[*PRESETS], metavar="PRESET",
        help=f"limits of MLPerf Inference: {', '.join(PRESETS)}; --slo-... go over them",
    )  # fmt: skip
    for name, text in LIMITS.items():
        group.add_argument(f"--slo-{name}-ms", type=milliseconds, metavar="MS", help=text)


def add_search(group, low: float, high: float, seconds: int) -> None:
    """None where nothing is given, so that what needs a search can be told apart."""
    group.add_argument(
        "--rates", type=rates, metavar="LOW,HIGH",
        help=f"requests/s between which it is looked for (default: {low:g},{high:g})",
    )  # fmt: skip
    group.add_argument(
        "--slo-share", type=percentage, metavar="PERCENT",
        help=f"of the requests must meet every limit (default: {DEFAULT_SHARE:g})",
    )  # fmt: skip
    group.add_argument(
        "--trial-seconds", type=trial_seconds, metavar="S",
        help=f"in which the requests of a trial arrive (default: {seconds})",
    )  # fmt: skip


def share_of(options) -> float:
    return (options.slo_share or DEFAULT_SHARE) / 100


def slo_of(options: Namespace) -> SLO:
    """A preset's limits, and those that are given over them."""
    base = PRESETS[options.slo].slo if options.slo else SLO()
    given = {name: getattr(options, f"slo_{name}_ms") for name in LIMITS}
    return replace(base, **{name: ms / 1000 for name, ms in given.items() if ms is not None})
