"""The picture of `bench soak`: memory, open files and open requests over time.

The colours are two of Okabe and Ito, which stay apart for colour-blind eyes.
"""

import io
from collections.abc import Sequence
from pathlib import Path

from labkit.measure.bench.soak_promises import Sample

BLUE, ORANGE, INK = "#0072B2", "#E69F00", "#333333"


def save(file: Path, samples: Sequence[Sample], about: str) -> None:
    """Draws the samples into `file`, whose suffix says how."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7.5), layout="constrained")
    memory, files, requests = figure.subplots(3, 1, sharex=True)
    for who, name, colour in (("api", "API process", BLUE), ("engine", "engine", ORANGE)):
        for axes, what, scale in ((memory, "rss", 1e6), (files, "fds", 1)):
            values = [getattr(one, f"{who}_{what}") for one in samples]
            values = [float("nan") if value is None else value / scale for value in values]
            times = [one.time for one in samples]
            axes.plot(times, values, color=colour, label=name, marker=".", markersize=2)
    requests.plot([one.time for one in samples], [one.open for one in samples], color=BLUE)
    memory.set(ylabel="RSS (MB)")
    memory.legend(frameon=False, fontsize=9)
    files.set(ylabel="open files")
    requests.set(ylabel="open requests", xlabel="seconds since the server started")
    for axes in (memory, files, requests):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK)
        axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
        axes.set_ylim(bottom=0)
    figure.suptitle(about, x=0.01, ha="left", fontsize=10, color=INK)
    picture = io.BytesIO()
    figure.savefig(picture, format=file.suffix[1:], dpi=150, facecolor="white")
    file.write_bytes(picture.getvalue())
