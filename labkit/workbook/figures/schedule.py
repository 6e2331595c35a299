"""What a scheduler did: a row for each request, and below it tokens and blocks of each step.

`rows_of` gives the bars; the widget draws the same ones in the browser.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.patches import Patch, Rectangle

from labkit.measure.schedule import Schedule
from labkit.workbook.figures.schedule_words import story_of
from labkit.workbook.plots import BLUE, GREY, ORANGE, VERMILLION, Picture, house_style, plain_number

LOOKS = {  # kind → colour, hatch, height of the bar
    "prefill": (BLUE, None, 0.8),
    "decode": (ORANGE, None, 0.4),
    "preempted": (VERMILLION, "////", 0.25),
    "waiting": (GREY, "....", 0.15),
}
MOST_TALL, MOST_NAMED = 20, 48  # rows that are high, and rows with a name
INCHES_PER_STEP = 0.28  # from here on a chunk's size fits its bar


class Bar(NamedTuple):
    """A span of one request, in seconds; `num_tokens` that it computes, 0 while it waits."""

    kind: str  # prefill, decode, waiting, preempted
    begin: float
    end: float
    num_tokens: int = 0


@dataclass
class Row:
    """One request. `end` is when it had its last token, None if it never had."""

    name: str
    tenant: str
    arrival: float
    bars: list[Bar] = field(default_factory=list)
    end: float | None = None
    tokens: list[float] = field(default_factory=list)  # when a step of decoding made its token

    latest: int = -1  # the last step in which it has a bar

    def add(self, bar: Bar, index: int) -> None:
        """The bar of step `index`. Those of steps in a row that do the same become one, but a
        chunk of a prompt keeps its own. (On a real clock a step begins after the last one ends.)
        """
        last = self.bars[-1] if self.bars else None
        if last and last.kind == bar.kind != "prefill" and self.latest >= index - 1:
            self.bars[-1] = last._replace(end=bar.end, num_tokens=last.num_tokens + bar.num_tokens)
        elif bar.end > bar.begin:
            self.bars.append(bar)
        self.latest = index


def rows_of(schedule: Schedule, until: int | None = None) -> list[Row]:
    """The bars of each request over the first `until` steps, in order of arrival."""
    rows = {
        name: Row(name, schedule.tenants.get(name, ""), max(when, 0.0))
        for name, when in schedule.arrivals.items()
    }
    away: set[str] = set()
    for index, step in enumerate(schedule.steps[:until]):
        away = (away | {*step.preempted}) - {*step.resumed}
        computed = {part.request_id: part for part in step.parts}
        for name in dict.fromkeys([*computed, *step.waiting]):
            row = rows.setdefault(name, Row(name, "", step.begin))
            if not row.bars and row.arrival < step.begin:  # it came while a step was computed
                row.add(Bar("waiting", row.arrival, step.begin), index - 1)
            if part := computed.get(name):
                bar = Bar(part.kind, step.begin, step.end, part.num_tokens)
                row.tokens += [step.end] * (part.kind == "decode")
            else:
                bar = Bar("preempted" if name in away else "waiting", step.begin, step.end)
            row.add(bar, index)
        for name in step.finished:
            rows[name].end = step.end
    return list(rows.values())


@house_style()
def schedule_figure(schedule: Schedule, title: str, *, until: int | None = None) -> Picture:
    """A row for each request, time to the right; below, tokens and blocks of each step.

    `until` draws only the first so many steps, on the axes of all: frames of a film. The story
    counts steps, tokens and preemptions, and says what went wrong if the schedule was stopped.
    """
    rows, steps = rows_of(schedule, until), schedule.steps[:until]
    last = max([step.end for step in schedule.steps] + [row.arrival for row in rows] or [1]) or 1
    inches = 0.24 if len(rows) <= MOST_TALL else 0.15 if len(rows) <= MOST_NAMED else 0.08
    high = min(max(inches * len(rows), 0.5), 12)
    picture = Picture(figsize=(9, 2.9 + high), layout="constrained")
    heights = [high + 0.3, 0.75, 0.75]
    upper, tokens, blocks = picture.subplots(3, 1, sharex=True, height_ratios=heights)
    draw_rows(upper, rows, 7.5 / max(len(schedule.steps), 1))
    upper.set_title(title, pad=26)
    draw_tokens(tokens, schedule, steps)
    draw_blocks(blocks, schedule, steps)
    blocks.set(xlabel="time (s)", xlim=(0, last))
    blocks.xaxis.set_major_formatter(plain_number)
    picture.story = story_of(schedule, len(steps))
    return picture


def draw_rows(axes: Axes, rows: list[Row], named_chunks: float) -> None:
    bars = [(place, bar) for place, row in enumerate(rows) for bar in row.bars]
    for kind, (colour, hatch, height) in LOOKS.items():
        found = [
            Rectangle((bar.begin, place - height / 2), bar.end - bar.begin, height)
            for place, bar in bars
            if bar.kind == kind
        ]
        edge = "white" if kind == "prefill" else colour
        add_boxes(axes, found, fc="none" if hatch else colour, ec=edge, hatch=hatch, lw=0.5)
    if named_chunks >= INCHES_PER_STEP and len(rows) <= MOST_TALL:
        style = {"ha": "center", "va": "center", "fontsize": 8, "color": "white", "clip_on": True}
        for place, bar in bars:
            if bar.kind == "prefill":
                axes.text((bar.begin + bar.end) / 2, place, bar.num_tokens, **style)
    if len(rows) <= MOST_TALL:  # a gap between two marks is what a reader waits for
        reach = LOOKS["decode"][2] / 2
        marks = [[(t, n - reach), (t, n + reach)] for n, row in enumerate(rows) for t in row.tokens]
        axes.add_collection(LineCollection(marks, colors="black", alpha=0.6, linewidths=0.7))
    for place, row in enumerate(rows):
        axes.plot(row.arrival, place, ">", color=GREY, markersize=5, clip_on=False)
        if row.end is not None:
            axes.plot(row.end, place, "|", color=GREY, markersize=11, mew=2, clip_on=False)
    named = len(rows) <= MOST_NAMED
    size = None if len(rows) <= MOST_TALL else 8
    names = [row.name for row in rows] if named else []
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_ylabel("" if named else f"{len(rows)} requests")
    axes.grid(axis="y", visible=False)
    handles = [
        Patch(facecolor=c if h is None else "none", edgecolor=c, hatch=h, label=kind)
        for kind, (c, h, _) in LOOKS.items()
    ]
    handles += axes.plot([], [], ">", color=GREY, markersize=5, label="arrives")
    handles += axes.plot([], [], "|", color=GREY, markersize=11, mew=2, label="has ended")
    where = {"loc": "lower left", "bbox_to_anchor": (-0.01, 1), "borderaxespad": 0.2}
    axes.legend(handles=handles, ncols=6, fontsize=9, columnspacing=1.2, handletextpad=0.5, **where)


def add_boxes(axes: Axes, boxes: list[Rectangle], **look) -> None:
    """Thousands of rectangles as one artist: a schedule of many steps is drawn in time."""
    if boxes:
        axes.add_collection(PatchCollection(boxes, **look))


def draw_tokens(axes: Axes, schedule: Schedule, steps) -> None:
    """Tokens of each step: prompts below, generated ones on top; a line at the budget."""
    floor = [0] * len(steps)
    for kind in ("prefill", "decode"):
        counts = [sum(p.num_tokens for p in s.parts if p.kind == kind) for s in steps]
        found = [
            Rectangle((step.begin, below), step.end - step.begin, count)
            for step, below, count in zip(steps, floor, counts, strict=True)
            if count
        ]
        add_boxes(axes, found, fc=LOOKS[kind][0], lw=0)
        floor = [below + count for below, count in zip(floor, counts, strict=True)]
    most = max([step.num_tokens for step in schedule.steps] + [1])
    if schedule.budget and schedule.budget <= 4 * most:
        most = max(most, schedule.budget)
        axes.axhline(schedule.budget, color=GREY, linestyle="--", linewidth=1)
    axes.set(ylabel="tokens\nin a step", ylim=(0, 1.1 * most))


def draw_blocks(axes: Axes, schedule: Schedule, steps) -> None:
    """Blocks in use in each step; a line at the size of the pool."""
    num_blocks = max((step.num_blocks for step in schedule.steps), default=1) or 1
    found = [Rectangle((s.begin, 0), s.end - s.begin, s.num_used) for s in steps]
    add_boxes(axes, found, fc=GREY, alpha=0.6, lw=0)
    most = max((step.num_used for step in schedule.steps), default=1)
    if num_blocks <= 4 * most:
        axes.axhline(num_blocks, color=GREY, linestyle="--", linewidth=1)
        most = num_blocks
    axes.set(ylabel="blocks\nin use", ylim=(0, 1.1 * max(most, 1)))
