"""The figures of notebook 10: the knee, what good tokens cost, pools, replicas over time.

None is wider than `WIDTH`: they are to be read on a telephone, too.
"""

import math
from collections.abc import Sequence

from labkit.measure.experiments.costs import Offered
from labkit.measure.experiments.costs_scaling import Scaled
from labkit.measure.experiments.costs_simulated import Pooled, Priced
from labkit.workbook.plots import (
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    MARKERS,
    ORANGE,
    SKY,
    VERMILLION,
    Picture,
    house_style,
    new_picture,
    plain_number,
)

WIDTH = 6.4  # inches
GRID = {"color": GREY, "alpha": 0.25, "linewidth": 0.8, "zorder": 0}


@house_style()
def knee_figure(points: Sequence[Offered], capacity: float | None = None) -> Picture:
    """Requests a second that were answered, and that met the SLO, over those that arrived."""
    points = sorted(points, key=lambda point: point.rate)
    picture, axes = new_picture(
        "Throughput and goodput (measured)", "requests a second that arrive", "requests a second",
        width=WIDTH,
    )  # fmt: skip
    rates = [point.rate for point in points]
    axes.plot(rates, rates, ":", color=GREY, label="all that arrive")
    axes.plot(rates, [p.throughput for p in points], "s--", color=ORANGE, label="answered")
    axes.plot(rates, [p.goodput for p in points], "o-", color=BLUE, label="answered within the SLO")
    if capacity:
        axes.axvline(capacity, color=VERMILLION, linewidth=1, label="capacity, as searched")
    axes.set(xlim=(0, None), ylim=(0, 1.15 * max(p.throughput for p in points)))
    axes.xaxis.set_major_formatter(plain_number)
    axes.yaxis.set_major_formatter(plain_number)
    picture.legend(loc="outside lower center", ncols=2)
    best, last = max(points, key=lambda p: p.goodput), points[-1]
    picture.story = (
        f"Goodput is highest at {best.rate:.1f} requests a second: {best.goodput:.1f}. At "
        f"{last.rate:.1f} a second, {last.throughput:.1f} a second are answered, and "
        f"{last.goodput:.1f} a second within the SLO."
    )
    return picture


@house_style()
def cost_figure(by_load: Sequence[Priced], by_budget: Sequence[Priced]) -> Picture:
    """The cost of all tokens and of the good ones: over the load, and over the budget of a step."""
    picture = Picture(figsize=(WIDTH, 6.6), layout="constrained")
    above, below = picture.subplots(2, 1, sharey=True)
    above.set(title="Cost over the load (modelled)", xlabel="requests a second")
    below.set(title=f"At {by_budget[0].rate:g} a second (modelled)", xscale="log",
              xlabel="max_num_batched_tokens")  # fmt: skip
    picture.supylabel("US dollars for a million tokens", fontsize="medium")
    for axes, points, places in (
        (above, by_load, [p.rate for p in by_load]),
        (below, by_budget, [p.budget for p in by_budget]),
    ):
        axes.plot(places, [p.cost for p in points], "s--", color=ORANGE, label="of all tokens")
        good = [p.good_cost if math.isfinite(p.good_cost) else math.nan for p in points]
        axes.plot(places, good, "o-", color=BLUE, label="of good tokens")
        axes.set(yscale="log", yticks=[0.1, 0.3, 1, 3, 10, 30])
        axes.yaxis.set_major_formatter(plain_number)
        axes.yaxis.set_minor_formatter("")
        axes.xaxis.set_major_formatter(plain_number)
    found = [p.good_cost for p in (*by_load, *by_budget) if math.isfinite(p.good_cost)]
    above.set_ylim(min(p.cost for p in (*by_load, *by_budget)) / 1.5, 1.5 * max(found, default=30))
    below.set_xticks([p.budget for p in by_budget])
    below.minorticks_off()
    below.legend(loc="upper right")
    cheapest = min(by_load, key=lambda p: p.good_cost)
    fastest = max(by_load, key=lambda p: p.tokens_per_s)
    budget = min(by_budget, key=lambda p: p.good_cost)
    picture.story = (
        f"Good tokens are cheapest at {cheapest.rate:g} requests a second, "
        f"{cheapest.good_cost:.2f} dollars a million; the most tokens come out at "
        f"{fastest.rate:g}, where a good million costs {plain_number(fastest.good_cost)}. At "
        f"{by_budget[0].rate:g} a second a budget of {budget.budget} is the cheapest."
    )
    return picture


@house_style()
def pools_figure(runs: Sequence[Pooled]) -> Picture:
    """A row for each fleet: the share of each class that met its SLO, and what good tokens cost."""
    picture, axes = new_picture(
        "Three classes on the same cards (modelled)",
        "share of the requests within their SLO\n(hollow: fewer than promised)",
        "",
        width=WIDTH,
        height=2.6 + 0.55 * len(runs),
    )
    names = list(runs[0].met)
    for place, name in enumerate(names):
        colour, marker = COLOURS[place], MARKERS[place]
        for row, run in enumerate(runs):
            fill = colour if run.is_kept[name] else "none"
            height = row + 0.18 * (place - 1)
            axes.plot(run.met[name], height, marker, color=colour, mfc=fill, mew=2)
        axes.plot([], [], marker, color=colour, label=name)
    for row, run in enumerate(runs):
        style = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"{run.cost:.2f}", (1.03, row), **style)
    axes.annotate("$ per million\ngood tokens", (1.03, -0.75), **style)
    axes.grid(visible=False)
    axes.hlines(range(len(runs)), 0, 1, **GRID)  # not through the costs
    axes.vlines([0, 0.25, 0.5, 0.75, 1], -0.5, len(runs) - 0.5, **GRID)
    axes.spines["bottom"].set_bounds(-0.03, 1)
    axes.set(xlim=(-0.03, 1.3), ylim=(len(runs) - 0.5, -1.1))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    axes.set_yticks(range(len(runs)), [run.name for run in runs])
    picture.legend(loc="outside lower center", ncols=3)
    picture.story = "; ".join(
        f"{run.name}: " + ", ".join(f"{name} {run.met[name]:.0%}" for name in names)
        + f", {run.cost:.2f} dollars for a million good tokens"
        for run in runs
    ) + "."  # fmt: skip
    return picture


@house_style()
def scaling_figure(run: Scaled, title: str = "Replicas follow the load (modelled)") -> Picture:
    """Replicas that are paid for, in three kinds, and the requests under way, over time."""
    picture = Picture(figsize=(WIDTH, 4.8), layout="constrained")
    above, below = picture.subplots(2, 1, sharex=True, height_ratios=[1, 1.2])
    times = [moment.time for moment in run.moments]
    requests = [moment.num_requests for moment in run.moments]
    above.set(title=title, ylabel="requests\nunder way", ylim=(0, 1.1 * max(requests)))
    above.plot(times, requests, color=VERMILLION)
    kinds = {
        "serves": [m.serving for m in run.moments],
        "is being started": [m.starting for m in run.moments],
        "ends what it has": [m.ending for m in run.moments],
    }
    looks = {"colors": (GREEN, SKY, GREY), "alpha": 0.75, "step": "post"}
    below.stackplot(times, *kinds.values(), labels=list(kinds), **looks)
    wanted = [moment.wanted for moment in run.moments]
    line = {"color": VERMILLION, "linewidth": 1.5, "linestyle": ":"}
    below.step(times, wanted, where="post", label="wanted", **line)
    most = max(moment.paid for moment in run.moments)
    below.set(xlabel="seconds", ylabel="replicas", ylim=(0, most + 0.5), xlim=(0, times[-1]))
    below.set_yticks(range(most + 1))
    picture.legend(*below.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    busiest = max(run.moments, key=lambda moment: moment.num_requests)
    picture.story = (
        f"At most {busiest.num_requests} requests are under way, at {busiest.time:.0f} s, and at "
        f"most {most} replicas paid for; {run.attainment:.0%} of the requests meet the SLO, "
        f"at {run.cost:.2f} dollars for a million good tokens."
    )
    return picture
