"""What a simulated server did with a designed workload, and what held it back.

An outcome is what `labkit.workbook.widgets.design.simulate` gives.
"""

from matplotlib.axes import Axes

from labkit.measure.bench.drive import percentile
from labkit.workbook.figures.batches import span
from labkit.workbook.plots import BLUE, GREY, ORANGE, VERMILLION, Picture, house_style, plain_number

LOOKS = {"chat": (BLUE, "o"), "batch": (ORANGE, "s")}
MUCH = 0.2  # a share of the time from which on something counts as saturated


def saturated(outcome) -> list[str]:
    """What ran out, in sentences, the cause before its effects; one sentence if nothing did."""
    design, told = outcome.design, []
    preempted = sum(group.num_preemptions for group in outcome.groups.values())
    if outcome.full_blocks >= MUCH:
        told.append(
            f"KV blocks are saturated: 95% or more of {design.num_blocks:,} are in use for "
            f"{percent(outcome.full_blocks)} of the time, with {preempted} preemptions."
        )
    if outcome.full_steps >= MUCH:
        told.append(
            f"The token budget is saturated: steps use up all {design.max_num_batched_tokens:,} "
            f"tokens for {percent(outcome.full_steps)} of the time, so prompts wait."
        )
    if outcome.full_slots >= MUCH:
        told.append(
            f"The slots are saturated: as many requests as may run for "
            f"{percent(outcome.full_slots)} of the time."
        )
    drain = outcome.seconds - outcome.last_arrival
    if outcome.last_arrival and drain > MUCH * outcome.last_arrival and most_waiting(outcome) > 10:
        told.append(
            f"More arrives than is served: up to {most_waiting(outcome)} requests wait, and the "
            f"last one ends {span(drain)} after the last arrival."
        )
    if outcome.num_failed:
        told.append(f"{outcome.num_failed} requests can never fit and are refused.")
    busy = percent(outcome.busy)
    return told or [f"Nothing is saturated: a step is computed for {busy} of the time."]


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def most_waiting(outcome) -> int:
    return max((waiting for _, _, waiting, _ in outcome.points), default=0)


def story_of(outcome) -> str:
    """Each class in a sentence, then what is saturated. Everything is modelled."""
    told = ["Modelled."]
    for name, group in outcome.groups.items():
        if not outcome.count(name):
            continue
        quantiles = (f"p{p} {span(percentile(group.ttft, p))}" for p in (50, 99) if group.ttft)
        told.append(
            f"{name}: TTFT {', '.join(quantiles) or 'of none'}; {outcome.met(name)} of "
            f"{outcome.count(name)} within the SLO ({slo_in_words(outcome.limits[name])}), "
            f"goodput {plain_number(goodput(outcome, name))}/s."
        )
    return " ".join(told + saturated(outcome))


def slo_in_words(slo) -> str:
    limits = {"TTFT": slo.ttft, "every ITL": slo.itl, "TPOT": slo.tpot, "E2E": slo.e2e}
    return ", ".join(f"{name} <= {span(value)}" for name, value in limits.items() if value)


def goodput(outcome, name: str) -> float:
    """Requests of a class that met its SLO, per second."""
    return outcome.met(name) / outcome.seconds if outcome.seconds else 0.0


@house_style()
def designer_figure(outcome, title: str = "One replica, two classes") -> Picture:
    """TTFT and ITL of each class from p50 to p99, goodput, and the KV cache over time."""
    picture = Picture(figsize=(9.5, 5.2), layout="constrained")
    (ttft, itl), (use, good) = picture.subplots(2, 2, width_ratios=[1.3, 1], height_ratios=[1, 1.4])
    ttft.set_title(f"{title} (modelled)")
    draw_spread(ttft, outcome, lambda group, p: percentile(group.ttft, p), "ttft")
    draw_spread(itl, outcome, lambda group, p: group.gaps.percentile(p), "itl")
    ttft.set(xscale="log", xlabel="TTFT, p50 | to p99 (s, logarithmic); dashed: SLO")
    ttft.set_xlim(0.03, max(300, 2 * ttft.get_xlim()[1]))  # alike for most designs, to compare
    ttft.xaxis.set_major_formatter(plain_number)
    ttft.minorticks_off()
    itl.set_xlabel("ITL, p50 | to p99 (s); dashed: SLO")
    itl.set_xlim(0, max(0.25, 1.15 * itl.get_xlim()[1]))
    itl.xaxis.set_major_formatter(plain_number)
    draw_goodput(good, outcome)
    draw_use(use, outcome)
    picture.story = story_of(outcome)
    return picture


def draw_spread(axes: Axes, outcome, quantile, limit: str) -> None:
    """A line from p50 to p99 for each class, and its SLO; `quantile(group, percent)`, seconds."""
    for place, (name, group) in enumerate(outcome.groups.items()):
        low, high = (quantile(group, p) if group.e2e else None for p in (50, 99))
        if low is None or high is None:
            continue
        colour, marker = LOOKS[name]
        axes.plot([low, high], [place, place], color=colour, linewidth=3)
        axes.plot(low, place, "|", color=colour, markersize=16, mew=3)
        axes.plot(high, place, marker, color=colour)
        style = {"textcoords": "offset points", "ha": "center", "fontsize": 9}
        axes.annotate(span(high), (high, place), (0, 9), **style)
        slo = getattr(outcome.limits[name], limit)
        if slo:
            axes.plot([slo, slo], [place - 0.35, place + 0.35], color=VERMILLION, linestyle="--")
    axes.set_yticks(range(len(outcome.groups)), [*outcome.groups])
    axes.set_ylim(len(outcome.groups) - 0.4, -0.7)
    axes.grid(axis="y", visible=False)


def draw_goodput(axes: Axes, outcome) -> None:
    """Requests per second: those that met their SLO filled, all that were answered as outline."""
    for place, name in enumerate(outcome.groups):
        rate = outcome.count(name) / outcome.seconds if outcome.seconds else 0
        colour = LOOKS[name][0]
        axes.barh(place, rate, 0.6, facecolor="none", edgecolor=colour, linewidth=1.5)
        axes.barh(place, goodput(outcome, name), 0.6, color=colour)
        share = outcome.met(name) / max(outcome.count(name), 1)
        style = {"textcoords": "offset points", "va": "center", "fontsize": 9}
        axes.annotate(percent(share), (rate, place), (4, 0), **style)
    axes.set_yticks(range(len(outcome.groups)), [*outcome.groups])
    axes.set(ylim=(len(outcome.groups) - 0.4, -0.6), xlabel="requests/s; filled: goodput")
    axes.margins(x=0.2)
    axes.grid(axis="y", visible=False)


def draw_use(axes: Axes, outcome) -> None:
    """Blocks in use, in percent, and how many wait, over time."""
    times, _, waiting, used = zip(*(outcome.points or [(0, 0, 0, 0)]), strict=True)
    share = [100 * blocks / outcome.design.num_blocks for blocks in used]
    axes.fill_between(times, share, color=GREY, alpha=0.5, step="pre", linewidth=0)
    axes.set(xlabel="time (s)", ylabel="KV blocks in use, % (area)", ylim=(0, 105))
    axes.set_xlim(0, max(times[-1], 1e-9))
    line = axes.twinx()
    line.plot(times, waiting, color=VERMILLION, linewidth=1.5, drawstyle="steps-pre")
    line.set(ylabel="requests waiting (line)", ylim=(0, 1.1 * max(*waiting, 10)))
    line.grid(visible=False)
    line.spines["right"].set_visible(True)
