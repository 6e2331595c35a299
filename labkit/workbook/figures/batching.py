"""The figures of notebook 02: slots of a static batch, throughput and goodput by batch size."""

from collections.abc import Mapping, Sequence

from labkit.engine.request import Request
from labkit.measure.batching import BatchPoint, BatchRun
from labkit.measure.experiments.batching import batches, goodput
from labkit.workbook.plots import (
    BLUE,
    COLOURS,
    GREY,
    MARKERS,
    ORANGE,
    VERMILLION,
    Picture,
    house_style,
    new_picture,
    plain_number,
)


@house_style()
def waste_figure(requests: Sequence[Request], batch_size: int, title: str) -> Picture:
    """Rows times steps of a static engine: who computes for somebody, and who for nobody."""
    picture, axes = new_picture(title, "steps (forward passes)", "row of the batch", height=3.2)
    start = useful = 0
    for batch in batches(requests, batch_size):
        longest = max(request.max_tokens for request in batch)
        for row, request in enumerate(batch):
            done = request.max_tokens
            useful += done
            axes.barh(row, done, left=start, color=BLUE, edgecolor="white", linewidth=0.8)
            axes.barh(
                row, longest - done, left=start + done, color="none", edgecolor=VERMILLION,
                hatch="////", linewidth=0.8,
            )  # fmt: skip
            if done >= 3:
                axes.text(start + done / 2, row, request.request_id, color="white", fontsize=8,
                          ha="center", va="center")  # fmt: skip
        start += longest
        axes.axvline(start, color=GREY, linewidth=1)
    slots = start * batch_size
    axes.barh(0, 0, color=BLUE, label=f"a token for a request: {useful:,} row-steps")
    axes.barh(0, 0, color="none", edgecolor=VERMILLION, hatch="////",
              label=f"finished or empty, computed on for nobody: {slots - useful:,}")  # fmt: skip
    axes.set_yticks(range(batch_size))
    axes.set_ylim(batch_size - 0.5, -0.5)
    axes.set_xlim(0, start)
    axes.grid(visible=False)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2)
    picture.story = (
        f"{slots:,} row-steps in batches of {batch_size}: {useful:,} made a token, "
        f"{slots - useful:,} ({(slots - useful) / slots:.0%}) nobody waited for."
    )
    return picture


@house_style()
def throughput_figure(sweeps: Mapping[str, Sequence[BatchPoint]]) -> Picture:
    """Tokens/s over batch size for each of `sweeps`, by name; the dotted line is proportional."""
    picture, axes = new_picture(
        "Does a larger batch raise throughput? (measured)", "batch size", "tokens per second"
    )
    stories = []
    for (name, points), colour, marker in zip(sweeps.items(), COLOURS, MARKERS, strict=False):
        sizes = [point.batch_size for point in points]
        speeds = [point.tokens_per_s for point in points]
        axes.plot(sizes, speeds, marker=marker, color=colour, label=name)
        first = speeds[0] / sizes[0]
        axes.plot(sizes, [first * s for s in sizes], ":", color=colour, linewidth=1)
        stories.append(
            f"{name}: {plain_number(speeds[0])} tokens/s at batch {sizes[0]}, "
            f"{plain_number(speeds[-1])} at {sizes[-1]} ({speeds[-1] / speeds[0]:.1f} times)"
        )
    axes.plot([], [], ":", color=GREY, linewidth=1, label="if rows came for free")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain_number)
        axis.set_minor_formatter("")
    axes.set_xticks(sizes)
    axes.legend(loc="upper left")
    picture.story = "; ".join(stories) + "."
    return picture


@house_style()
def goodput_figure(
    runs: Sequence[BatchRun], ttft_limit: float, tpot_limit: float, best: int | None
) -> Picture:
    """Requests per second by batch size: all that were served, and those within the SLO."""
    limits = f"TTFT ≤ {1e3 * ttft_limit:,.0f} ms, TPOT ≤ {1e3 * tpot_limit:,.0f} ms"
    picture, axes = new_picture(
        f"Goodput under {limits} (measured)", "batch size", "requests per second"
    )
    served = [len(run.latencies) / run.seconds for run in runs]
    good = [goodput(run, ttft_limit, tpot_limit) for run in runs]
    places = range(len(runs))
    axes.bar([p - 0.2 for p in places], served, 0.4, color="none", edgecolor=GREY, hatch="//",
             label="all requests")  # fmt: skip
    axes.bar([p + 0.2 for p in places], good, 0.4, color=BLUE, label="within the SLO: goodput")
    for place, value in zip(places, good, strict=True):
        axes.annotate(plain_number(value), (place + 0.2, value), (0, 3), ha="center",
                      textcoords="offset points")  # fmt: skip
    for place, run in enumerate(runs):
        if run.batch_size == best:
            axes.plot(place + 0.2, good[place] / 2, "*", color=ORANGE, markersize=16,
                      linestyle="", label=f"best: batch {best}")  # fmt: skip
    axes.set_xticks(places, [str(run.batch_size) for run in runs])
    axes.set_ylim(0, 1.3 * max(served))
    axes.legend(loc="upper left", ncols=3)
    told = ", ".join(f"{g:.2f} at {run.batch_size}" for g, run in zip(good, runs, strict=True))
    picture.story = f"Requests per second within the SLO: {told}; best batch: {best}."
    return picture
