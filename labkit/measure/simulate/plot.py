"""The picture of a simulation. Colours are of Okabe and Ito: colour-blind eyes tell them apart."""

import io
from pathlib import Path

from labkit.measure.simulate.timeline import Timeline

INK, BLUE, ORANGE, RED, GREY = "#333333", "#0072B2", "#E69F00", "#D55E00", "#CCCCCC"
COLOURS = {"waiting": GREY, "prefill": BLUE, "decode": ORANGE, "preempted": RED}
HATCHES = {"preempted": "////"}
MOST_NAMES = 60  # on the axis of requests


def save(file: Path, timeline: Timeline, about: str, num_blocks: int) -> None:
    """Draws a timeline into `file`, whose suffix says how. `num_blocks` is of all replicas."""
    from matplotlib.figure import Figure

    if timeline.by_request:
        figure = Figure(figsize=(10, 1.8 + 0.22 * len(timeline.rows)), layout="constrained")
        draw_rows(figure.subplots(), timeline)
    else:
        figure = Figure(figsize=(10, 5), layout="constrained")
        draw_counts(figure.subplots(2, 1, sharex=True), timeline, num_blocks)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK)
    figure.suptitle(about, x=0.01, ha="left", fontsize=10, color=INK)
    picture = io.BytesIO()
    figure.savefig(picture, format=file.suffix[1:], dpi=150, facecolor="white")
    file.write_bytes(picture.getvalue())


def draw_rows(axes, timeline: Timeline) -> None:
    """A bar for each request, in order of arrival from the top."""
    from matplotlib.patches import Patch

    rows = [timeline.rows[number] for number in sorted(timeline.rows)]
    for state, colour in COLOURS.items():
        for place, row in enumerate(rows):
            spans = [(begin, end - begin) for kind, begin, end in row.spans if kind == state]
            axes.broken_barh(
                spans, (place - 0.4, 0.8), facecolor=colour, hatch=HATCHES.get(state), linewidth=0
            )
    named = len(rows) <= MOST_NAMES
    axes.set_yticks(range(len(rows)) if named else [], [r.name for r in rows] if named else [])
    axes.set(xlabel="time (s)", ylabel="request, in order of arrival", xlim=(0, None))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    shown = [
        Patch(facecolor=colour, hatch=HATCHES.get(state), label=state, linewidth=0)
        for state, colour in COLOURS.items()
    ]
    axes.legend(
        handles=shown, loc="lower left", bbox_to_anchor=(0, 1), ncols=4, frameon=False, fontsize=9
    )


def draw_counts(both, timeline: Timeline, num_blocks: int) -> None:
    """How many run and wait; below, how much of the KV cache is in use."""
    upper, lower = both
    times, running, waiting, used = zip(*timeline.points, strict=True)
    upper.plot(times, running, color=ORANGE, label="running", drawstyle="steps-post", linewidth=1)
    upper.plot(
        times, waiting, color=INK, label="waiting", drawstyle="steps-post", linewidth=1,
        linestyle="--",
    )  # fmt: skip
    upper.set(ylabel="requests", ylim=(0, None))
    upper.legend(frameon=False, fontsize=9, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
    share = [100 * blocks / num_blocks for blocks in used]
    lower.fill_between(times, share, color=BLUE, step="post", linewidth=0)
    lower.set(xlabel="time (s)", ylabel="KV cache in use (%)", ylim=(0, 100), xlim=(0, None))
