"""What can be operated in a notebook. Each shows a static figure and a line of text first.

So a page without a kernel tells its story too. Figures are pure functions in
`labkit.workbook.figures`; what is here only moves them.
"""

import math
from collections.abc import Mapping, Sequence

from labkit.measure.schedule import Schedule
from labkit.workbook.figures.batches import batches_figure
from labkit.workbook.figures.race import race_figure
from labkit.workbook.figures.schedule import schedule_figure
from labkit.workbook.figures.xray import XRay, xray_figure
from labkit.workbook.widgets import data
from labkit.workbook.widgets.designer import workload_designer
from labkit.workbook.widgets.drawn import BatchExplorer, BlockXRay, StreamingRace, Timeline, show


def timeline(schedule: Schedule, title: str) -> None:
    """A schedule to scrub and play, step by step; at each step words say what happened."""
    widget = Timeline(data=data.timeline_data(schedule, title)) if schedule.steps else None
    show(schedule_figure(schedule, title), widget)


def block_xray(states: Sequence[XRay], title: str) -> None:
    """Block pool and block tables to scrub through; the static figure is the last state.

    Raises ValueError for no state.
    """
    states = list(states)
    if not states:
        raise ValueError("states is empty; block_xray needs at least one XRay")
    widget = BlockXRay(data=data.xray_data(states, title)) if len(states) > 1 else None
    show(xray_figure(states[-1], title, data.names_of(states)), widget)


def batch_explorer(points: Sequence, title: str, slo_s: float | None = None) -> None:
    """Throughput and latency against batch size, with a slider for the SLO.

    `points` are BatchPoints of `labkit.measure.batching`; `slo_s` is the most that the end-to-end
    latency may be at first, in seconds. Raises ValueError for no point, and for a number that is
    NaN or infinite.
    """
    points = list(points)
    if not points:
        raise ValueError("points is empty; batch_explorer needs at least one BatchPoint")
    for point in points:
        for name, value in vars(point).items():
            refuse_not_finite(value, f"{name} of batch {point.batch_size}")
    refuse_not_finite(slo_s, "slo_s")
    widget = BatchExplorer(data=data.batch_data(points, title, slo_s))
    show(batches_figure(points, title, slo_s), widget)


def streaming_race(lanes: Mapping[str, Sequence[tuple[float, str]]], title: str) -> None:
    """Lanes of text that appears as it did. `lanes` is {name: [(seconds, text), ...]}, with
    seconds since a common start. Raises ValueError for one that is NaN or infinite."""
    for name, pieces in lanes.items():
        for when, _ in pieces:
            refuse_not_finite(when, f"a time of lane {name!r}")
    show(race_figure(lanes, title), StreamingRace(data=data.race_data(lanes, title)))


def refuse_not_finite(value: float | None, what: str) -> None:
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{what} is {value}, which can't be drawn; leave it out, or measure again")


__all__ = ["batch_explorer", "block_xray", "streaming_race", "timeline", "workload_designer"]
