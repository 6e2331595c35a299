"""The picture of `bench bottleneck`: a panel for each figure, a bar for each cause.

Colours are of Okabe and Ito: colour-blind eyes tell them apart.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BLUE, ORANGE, GREY, INK = "#0072B2", "#E69F00", "#999999", "#333333"


@dataclass(frozen=True)
class Panel:
    """One figure: a bar for `key`, and an outline for `most` where there is one."""

    title: str
    key: str
    scale: float
    most: str | None = None
    most_name: str = ""
    is_log: bool = False


PANELS = [
    Panel("device busy (% of the run)", "busy", 100),
    Panel("MFU (% of peak FLOP/s)", "mfu", 100),
    Panel("output tokens/s", "tokens_per_s", 1),
    Panel("output tokens a step", "tokens_per_step", 1),
    Panel("queue time (ms)", "queue_p50_s", 1000, "queue_p99_s", "p99", True),
    Panel("time to first token (ms)", "ttft_p50_s", 1000, "ttft_p99_s", "p99", True),
    Panel("gap between tokens (ms)", "itl_p50_s", 1000, "itl_p99_s", "p99", True),
    Panel("KV cache held (% of blocks)", "kv_mean", 100, "kv_peak", "peak"),
]


def save(file: Path, rows: Sequence[dict], about: str) -> None:
    """Draws the rows into `file`, whose suffix says how; the first one is the baseline."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = Figure(figsize=(13, 3.2 + 0.62 * len(rows)), layout="constrained")
    axes = figure.subplots(2, 4, sharey=True)
    for axis, panel in zip(axes.flat, PANELS, strict=True):
        draw(axis, panel, rows)
    axes[0][0].invert_yaxis()  # shared: the baseline on top, as in the table
    figure.suptitle(about, x=0.01, ha="left", fontsize=9, color=INK)
    keys = [
        Patch(color=GREY, label="baseline"),
        Patch(color=BLUE, label="one thing wrong (p50 or mean)"),
        Patch(facecolor="none", edgecolor=ORANGE, label="p99, or peak"),
        Line2D([], [], color=INK, linestyle=":", linewidth=1, label="the baseline's value"),
    ]
    figure.legend(handles=keys, loc="outside lower left", ncols=4, frameon=False, fontsize=9)
    picture = io.BytesIO()
    figure.savefig(picture, format=file.suffix[1:], dpi=150, facecolor="white")
    file.write_bytes(picture.getvalue())


def draw(axis, panel: Panel, rows: Sequence[dict]) -> None:
    """One panel: bars with their figures at the end."""
    names = [row["cause"] for row in rows]
    values = [panel.scale * (row[panel.key] or 0.0) for row in rows]
    ends = [panel.scale * (row[panel.most or panel.key] or 0.0) for row in rows]
    least = min([value for value in values if value > 0], default=1.0) if panel.is_log else 0.0
    left = min(0.5, least / 2) if panel.is_log else 0.0
    if panel.is_log:
        axis.set_xscale("log")
        axis.xaxis.set_major_formatter("{x:,g}")
    widths = [max(value - left, 0) for value in values]
    axis.barh(names, widths, left=left, height=0.62, color=[GREY, *[BLUE] * (len(rows) - 1)])
    if panel.most:
        outline = [max(value - left, 0) for value in ends]
        axis.barh(names, outline, left=left, height=0.62, color="none", edgecolor=ORANGE)
    axis.axvline(values[0], color=INK, linestyle=":", linewidth=1)
    told = [text_of(panel, row) for row in rows]
    label(axis, told, [max(pair) for pair in zip(values, ends, strict=True)], left)
    most = max(*values, *ends, 1e-9)
    room = 0.55 if panel.most else 0.3  # of the bars' length, for the texts
    limits = left, most * (most / left) ** room if panel.is_log else most * (1 + room)
    axis.set_xticks([tick for tick in axis.get_xticks() if left <= tick <= most * 1.01])
    axis.set_xlim(*limits)
    axis.set_xlabel(panel.title, color=INK)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=INK, left=False)


def label(axis, texts: Sequence[str], ends: Sequence[float], left: float) -> None:
    """Writes the figures behind each bar."""
    for place, (text, end) in enumerate(zip(texts, ends, strict=True)):
        axis.annotate(
            text, (max(end, left), place), xytext=(4, 0), textcoords="offset points",
            va="center", fontsize=8, color=INK,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip


def text_of(panel: Panel, row: dict) -> str:
    """A row's figures in a panel."""
    values = [row[key] for key in (panel.key, panel.most) if key]
    return " / ".join("-" if value is None else short(panel.scale * value) for value in values)


def short(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"
