"""The picture of the ladder: throughput and time to first token of every rung, side by side.

The colours are two of Okabe and Ito, which stay apart for colour-blind eyes.
"""

import io
from collections.abc import Sequence
from pathlib import Path

BLUE, ORANGE, INK = "#0072B2", "#E69F00", "#333333"


def save(file: Path, rows: Sequence[dict], about: str) -> None:
    """Draws the rows of `bench ladder` into `file`, whose suffix says how."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1.7 + 0.5 * len(rows)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    names = [row["rung"] for row in rows]
    rates = [row["tokens_per_s"] for row in rows]
    label(
        left,
        left.barh(names, rates, color=BLUE, height=0.6),
        [f"{rate:.{int(rate < 100)}f}" for rate in rates],
    )
    left.set(xlabel="throughput (output tokens/s), more is better", ylabel="rung")
    left.invert_yaxis()  # the first rung on top, as in the table

    median, worst = [row["ttft_p50_s"] for row in rows], [row["ttft_p99_s"] for row in rows]
    texts = [f"{half:.2f} / {most:.2f}" for half, most in zip(median, worst, strict=True)]
    bars = right.barh(names, worst, color="none", edgecolor=ORANGE, height=0.6, label="p99")
    right.barh(names, median, color=ORANGE, height=0.6, label="p50")
    label(right, bars, texts)
    right.set(xlabel="time to first token (s), p50 filled / p99 outline, less is better")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK, left=False)
    figure.suptitle(about, x=0.01, ha="left", fontsize=10, color=INK)

    picture = io.BytesIO()
    figure.savefig(picture, format=file.suffix[1:], dpi=150, facecolor="white")
    file.write_bytes(picture.getvalue())


def label(axes, bars, texts: Sequence[str]) -> None:
    """Writes the figure at the end of each bar, and leaves room for it."""
    axes.bar_label(bars, texts, padding=4, color=INK, fontsize=9)
    axes.set_xlim(0, 1.25 * max(bar.get_width() for bar in bars))
