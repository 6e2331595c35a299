"""What a batch size brings and costs: throughput, latency, and the best one under an SLO.

Points have the fields of `labkit.measure.batching.BatchPoint`.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes

from labkit.workbook.plots import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    Picture,
    house_style,
    plain_number,
)

LATENCIES = {"e2e_s": "E2E", "ttft_s": "TTFT", "itl_s": "ITL"}
LOOKS = {"e2e_s": (BLUE, "o"), "ttft_s": (SKY, "s"), "itl_s": (PURPLE, "^")}


def knee(points: Sequence):
    """Where throughput stops growing with the batch; None if it does not, or for under 3 points.

    It is the point farthest above the straight line from the first to the last one, both axes
    scaled to 1 (Satopaa et al., "Finding a Kneedle in a Haystack", 2011).
    """
    points = sorted(points, key=lambda point: point.batch_size)
    if len(points) < 3:
        return None
    first, last = points[0], points[-1]
    most = max(point.tokens_per_s for point in points)
    wide, high = last.batch_size - first.batch_size, most - first.tokens_per_s
    if wide <= 0 or high <= 0:
        return None
    rise = (last.tokens_per_s - first.tokens_per_s) / high

    def above(point) -> float:
        along = (point.batch_size - first.batch_size) / wide
        return (point.tokens_per_s - first.tokens_per_s) / high - along * rise

    found = max(points[1:-1], key=above)
    return found if above(found) > 0.05 else None


def best_under(points: Sequence, slo_s: float | None, latency: str = "e2e_s"):
    """The point of the most tokens/s whose `latency` is at most `slo_s`; None if none is.

    Among equals the smaller batch. Without an SLO it is the most tokens/s of all.
    """
    fine = [p for p in points if slo_s is None or getattr(p, latency) <= slo_s]
    return max(fine, key=lambda p: (p.tokens_per_s, -p.batch_size), default=None)


def story_of(points: Sequence, slo_s: float | None = None, latency: str = "e2e_s") -> str:
    """Knee, fastest batch, and the best one under the SLO, with their numbers."""
    turn, fastest = knee(points), best_under(points, None)
    told = [
        f"Most tokens per second: batch {fastest.batch_size}, {tell(fastest, latency)}.",
        f"Knee: batch {turn.batch_size}, {tell(turn, latency)}."
        if turn
        else "No knee: throughput has not levelled off.",
    ]
    if slo_s is not None:
        best, name = best_under(points, slo_s, latency), LATENCIES[latency]
        limit = f"Within {name} <= {span(slo_s)}"
        told.append(
            f"{limit} the best is batch {best.batch_size}, {tell(best, latency)}."
            if best
            else f"{limit} there is no batch size: goodput is 0."
        )
    return " ".join(told)


def tell(point, latency: str) -> str:
    told = f"{plain_number(point.tokens_per_s)} tokens/s, {LATENCIES[latency]} "
    return told + f"{span(getattr(point, latency))}, {point.memory_bytes / 2**20:,.0f} MiB"


def span(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


@house_style()
def batches_figure(
    points: Sequence, title: str, slo_s: float | None = None, latency: str = "e2e_s"
) -> Picture:
    """Left tokens/s, those within the SLO filled; right the latencies, and the SLO as a line.

    `slo_s` is the most that `latency` ("e2e_s", "ttft_s" or "itl_s") may be, in seconds.
    """
    points = sorted(points, key=lambda point: point.batch_size)
    picture = Picture(figsize=(9.5, 4), layout="constrained")
    left, right = picture.subplots(1, 2)
    left.set_title(title)
    draw_speed(left, points, slo_s, latency)
    draw_latency(right, points, slo_s, latency)
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks([p.batch_size for p in points], [str(p.batch_size) for p in points])
        axes.minorticks_off()
        axes.set_xlabel("batch size")
    picture.story = story_of(points, slo_s, latency)
    return picture


def draw_speed(axes: Axes, points: Sequence, slo_s: float | None, latency: str) -> None:
    sizes, speeds = [p.batch_size for p in points], [p.tokens_per_s for p in points]
    axes.plot(sizes, speeds, "o-", color=BLUE, mfc="none", mew=2, label="tokens/s")
    if slo_s is not None:
        good = [p.tokens_per_s if getattr(p, latency) <= slo_s else 0 for p in points]
        axes.plot(sizes, good, "s--", color=GREEN, label="goodput: tokens/s within the SLO")
    top = max(speeds)
    if turn := knee(points):
        axes.axvline(turn.batch_size, color=GREY, linestyle=":", linewidth=1.5)
        mark(axes, turn, f"knee: {turn.batch_size}", GREY, (5, -26), ha="left")
    if best := slo_s is not None and best_under(points, slo_s, latency):
        axes.plot(best.batch_size, best.tokens_per_s, "o", ms=18, mfc="none", mec=ORANGE, mew=3)
        mark(axes, best, f"best: {best.batch_size}", ORANGE, (0, 14))
    axes.set(ylabel="tokens per second", ylim=(-0.03 * top, 1.3 * top))
    axes.yaxis.set_major_formatter(plain_number)
    axes.legend(loc="upper left", fontsize=9)


def mark(axes: Axes, point, text: str, colour: str, shift, ha: str = "center") -> None:
    where = (point.batch_size, point.tokens_per_s)
    style = {"ha": ha, "color": colour, "fontweight": "bold", "textcoords": "offset points"}
    axes.annotate(text, where, shift, **style)


def draw_latency(axes: Axes, points: Sequence, slo_s: float | None, latency: str) -> None:
    for name, label in LATENCIES.items():
        colour, marker = LOOKS[name]
        chosen = slo_s is not None and name == latency
        pairs = [(p.batch_size, getattr(p, name)) for p in points if getattr(p, name)]
        style = {"color": colour, "alpha": 1.0 if chosen or slo_s is None else 0.5}
        if pairs:
            axes.plot(*zip(*pairs, strict=True), f"{marker}-", label=label, **style)
    if slo_s is not None:
        limit = f"SLO: {LATENCIES[latency]} {span(slo_s)}"
        axes.axhline(slo_s, color=ORANGE, linestyle="--", label=limit)
    axes.set(ylabel="seconds (logarithmic)", yscale="log")
    axes.yaxis.set_major_formatter(plain_number)
    axes.legend(loc="best", fontsize=9)


__all__ = ["LATENCIES", "batches_figure", "best_under", "knee", "story_of"]
