"""The options that say what is promised and what it costs, the same in `bench` and `simulate`."""

from argparse import ArgumentTypeError
from dataclasses import replace

from labkit.measure.slo import PRESETS, SLO

DEFAULT_SHARE = 99.0  # percent, as MLPerf has it


def rates(text: str) -> tuple[float, float]:
    """LOW,HIGH in requests a second."""
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = 0.0
    if not 0 < low <= high < 1e9:
        raise ArgumentTypeError(f"{text!r} is no LOW,HIGH with 0 < LOW <= HIGH, such as 0.1,100")
    return low, high


def percentage(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 100:
        raise ArgumentTypeError(f"{text!r} is no percentage above 0 and up to 100; choose one")
    return value


def dollars(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise ArgumentTypeError(f"{text!r} is no price in USD an hour, 0 or more; give a number")
    return value


def add_preset(group) -> None:
    group.add_argument(
        "--slo", choices=[*PRESETS], metavar="PRESET",
        help=f"limits of MLPerf Inference: {', '.join(PRESETS)}; --slo-... go over them",
    )  # fmt: skip


def add_search(group, high: int, seconds: int) -> None:
    """None where nothing is given, so that what needs a search can be told apart."""
    group.add_argument(
        "--rates", type=rates, metavar="LOW,HIGH",
        help=f"requests/s between which it is looked for (default: 0.1,{high})",
    )  # fmt: skip
    group.add_argument(
        "--slo-share", type=percentage, metavar="PERCENT",
        help=f"of the requests must meet every limit (default: {DEFAULT_SHARE:g})",
    )  # fmt: skip
    group.add_argument(
        "--trial-seconds", type=seconds_of, metavar="S",
        help=f"in which the requests of a trial arrive (default: {seconds})",
    )  # fmt: skip


def seconds_of(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= 86_400:
        raise ArgumentTypeError(f"{text!r} is no number of seconds from 1 to 86,400; choose one")
    return value


def share_of(options) -> float:
    return (options.slo_share or DEFAULT_SHARE) / 100


def slo_of(preset: str | None, limits_ms: dict[str, float | None]) -> SLO:
    """A preset's limits with those over it that are given, in milliseconds."""
    base = PRESETS[preset].slo if preset else SLO()
    return replace(base, **{name: ms / 1000 for name, ms in limits_ms.items() if ms is not None})
