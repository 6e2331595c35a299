"""The figures of notebook 08: chat under each policy, two ways back, a sweep of the load."""

from collections.abc import Mapping, Sequence

from labkit.measure.experiments.priorities import Served
from labkit.measure.experiments.priorities_costs import WayBack
from labkit.measure.experiments.priorities_simulated import Point
from labkit.workbook.plots import (
    BLUE,
    GREEN,
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
def classes_figure(runs: Mapping[str, Served], slo_s: float) -> Picture:
    """A row for each run: chat's TTFT, each request a mark, and when the batch job was done."""
    picture, axes = new_picture(
        "Three classes on one engine (measured)",
        "seconds (logarithmic)",
        "",
        height=1.6 + 0.55 * len(runs),
    )
    stories = []
    for row, (name, served) in enumerate(runs.items()):
        ttft = [one.ttft for one in served.latencies("chat")]
        done = max(one.e2e for one in served.latencies("batch"))
        axes.plot([min(ttft), max(ttft)], [row, row], color=BLUE, linewidth=1)
        axes.plot(ttft, [row] * len(ttft), "o", color=BLUE, mfc="none", mew=2)
        axes.plot(done, row, "D", color=ORANGE)
        stories.append(
            f"{name}: chat TTFT p50 {served.ttft('chat', 50):.2f} s, p99 "
            f"{served.ttft('chat', 99):.2f} s, batch done after {done:.1f} s"
        )
    axes.plot([], [], "o", color=BLUE, mfc="none", mew=2, label="TTFT of a chat request")
    axes.plot([], [], "D", color=ORANGE, label="the batch job is done")
    axes.axvline(slo_s, color=GREY, linestyle="--", label="SLO of chat's TTFT")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(plain_number)
    axes.xaxis.set_minor_formatter("")
    axes.set_yticks(range(len(runs)), list(runs))
    axes.set_ylim(len(runs) - 0.5, -0.5)
    picture.legend(loc="outside lower center", ncols=3, columnspacing=1)
    picture.story = "; ".join(stories) + "."
    return picture


@house_style()
def ways_back_figure(found: Sequence[WayBack]) -> Picture:
    """Milliseconds until a preempted request has its next token, over how much it had computed."""
    picture, axes = new_picture(
        "Back after a preemption (measured)",
        "tokens that the request had computed",
        "milliseconds to its next token",
    )
    lengths = [one.num_tokens for one in found]
    for name, colour, mark, values in (
        ("recompute: one step over all of them", VERMILLION, "s-", [x.recompute_s for x in found]),
        ("swap: copy out, copy back, a step of one", BLUE, "o--", [x.swap_s for x in found]),
    ):
        axes.plot(lengths, [1e3 * s for s in values], mark, color=colour, label=name)
    axes.set(xlim=(0, None), ylim=(0, 1.4 * axes.get_ylim()[1]))  # room for the legend
    axes.yaxis.set_major_formatter(plain_number)
    axes.legend(loc="upper left")
    last = found[-1]
    picture.story = (
        f"After {last.num_tokens} tokens, {1e3 * last.recompute_s:.0f} ms by recompute and "
        f"{1e3 * last.swap_s:.0f} ms by swap: {last.recompute_s / last.swap_s:.1f} times as long."
    )
    return picture


@house_style()
def rate_figure(points: Sequence[Point], slo_s: float = 1.0) -> Picture:
    """Chat's p99 TTFT and the batch job's mean E2E over the load, a line for each policy."""
    picture = Picture(figsize=(9, 3.9), layout="constrained")
    left, right = picture.subplots(1, 2)
    left.set_title("chat: p99 TTFT (modelled)")
    right.set_title("batch: mean E2E (modelled)")
    left.axhline(slo_s, color=GREY, linestyle=":", label=f"SLO: {slo_s:g} s")
    stories = []
    names = list(dict.fromkeys(point.policy for point in points))
    for name, colour, marker in zip(names, (VERMILLION, BLUE, GREEN), MARKERS, strict=False):
        own = [point for point in points if point.policy == name]
        rates, style = [point.rate for point in own], {"color": colour, "marker": marker}
        left.plot(rates, [point.chat_p99_s for point in own], label=name, **style)
        right.plot(rates, [point.batch_e2e_s for point in own], label=name, **style)
        stories.append(
            f"{name}: chat p99 {own[0].chat_p99_s:.2f} s at {rates[0]:g} a second, "
            f"{own[-1].chat_p99_s:.2f} s at {rates[-1]:g}, where a batch request takes "
            f"{own[-1].batch_e2e_s:.1f} s"
        )
    left.set(ylabel="seconds (logarithmic)", yscale="log")
    left.yaxis.set_minor_formatter("")
    right.set(ylabel="seconds", ylim=(0, None))
    for axes in (left, right):
        axes.set_xlabel("requests per second")
        axes.yaxis.set_major_formatter(plain_number)
        axes.legend(loc="upper left")
    picture.story = "; ".join(stories) + "."
    return picture
