"""The figures of notebook 09: models in memory, requests on replicas, sessions that move."""

from collections.abc import Mapping, Sequence

from labkit.measure.experiments.fleet_hangs import HANGS, Asked
from labkit.measure.experiments.fleet_models import Stay, Visits
from labkit.measure.experiments.fleet_routing import Routed
from labkit.workbook.plots import (
    BLUE,
    COLOURS,
    GREY,
    MARKERS,
    VERMILLION,
    Picture,
    house_style,
    new_picture,
    plain_number,
)

WIDTH = 6.5  # inches: labels can still be read where a page is 400 pixels wide
HATCHES = ("", "//", "..", "xx", "\\\\", "++")


@house_style()
def shelf_figure(runs: Mapping[str, Visits], budget: int) -> Picture:
    """Bytes in memory over time, a panel for each run, a colour and a hatch for each model."""
    picture = Picture(figsize=(WIDTH, 1.1 + 2.1 * len(runs)), layout="constrained")
    panels = picture.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    names = list(dict.fromkeys(stay.name for run in runs.values() for stay in run.stays))
    stories = []
    for axes, (title, run) in zip(panels, runs.items(), strict=True):
        times = sorted({0.0, run.seconds, *moments(run.stays, run.seconds)})
        heights = [[height(run.stays, name, t, run.seconds) for t in times] for name in names]
        layers = axes.stackplot(times, heights, step="post", labels=names, colors=COLOURS)
        for i, layer in enumerate(layers):
            layer.set(alpha=0.75, hatch=HATCHES[i % len(HATCHES)], edgecolor="white", linewidth=0)
        waits = [visit for visit in run.visits if not visit.was_ready]
        axes.plot([v.at for v in waits], [budget / 1e6 * 1.06] * len(waits), "v", color=VERMILLION,
                  markersize=6)  # fmt: skip
        axes.axhline(budget / 1e6, color=GREY, linestyle="--")
        waited = run.waited_s - waited_when_ready(run)
        stories.append(
            f"{title}: {run.num_hits} of {len(run.visits)} requests found their model, the others "
            f"waited {waited:.1f} s in all"
        )
        axes.set_title(f"{title}: {run.num_hits} of {len(run.visits)} hits, {waited:.1f} s waited")
        axes.set(ylabel="MB in memory", ylim=(0, budget / 1e6 * 1.15))
    panels[-1].set_xlabel("seconds (measured)")
    panels[0].plot([], [], "v", color=VERMILLION, label="a request that waits for a load")
    panels[0].plot([], [], "--", color=GREY, label="budget")
    handles, labels = panels[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=3, columnspacing=1)
    picture.story = "; ".join(stories) + "."
    return picture


def waited_when_ready(run: Visits) -> float:
    return sum(visit.waited_s for visit in run.visits if visit.was_ready)


def moments(stays: Sequence[Stay], end: float) -> list[float]:
    """When something came or went, up to the end of the run."""
    found = [t for stay in stays for t in (stay.begin, stay.end) if t is not None]
    return [t for t in found if 0 <= t <= end]


def height(stays: Sequence[Stay], name: str, time: float, last: float) -> float:
    """Megabytes of a model at a time, from the beginning of its load until it is gone."""
    here = [s for s in stays if s.name == name and s.begin <= time < (s.end or last + 1)]
    return sum(stay.num_bytes for stay in here) / 1e6


@house_style()
def replicas_figure(runs: Sequence[Routed], num_replicas: int, kind: str) -> Picture:
    """Each request where it went, coloured and shaped by its beginning: hollow where most of its
    prompt was computed, filled where it was found in the cache."""
    height_of_panels = (0.5 + 0.36 * num_replicas) * len(runs)
    picture = Picture(figsize=(WIDTH, 1.2 + height_of_panels), layout="constrained")
    panels = picture.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
    prefixes = sorted({one.prefix for run in runs for one in run.sent})
    stories = []
    for axes, run in zip(panels, runs, strict=True):
        for one in run.sent:
            which = prefixes.index(one.prefix) % len(COLOURS)
            found = one.num_cached_tokens > one.num_prompt_tokens / 2
            axes.plot(one.at, one.replica, MARKERS[which], color=COLOURS[which], mew=1.6,
                      mfc=COLOURS[which] if found else "none")  # fmt: skip
        axes.set_yticks(range(num_replicas), [f"replica {i}" for i in range(num_replicas)])
        axes.set_ylim(num_replicas - 0.5, -0.5)
        story = f"{run.policy}: {run.hit_rate:.0%} of prompt tokens from a cache"
        axes.set_title(story)
        stories.append(story)
    panels[-1].set_xlabel(f"seconds ({kind})")
    for which, prefix in enumerate(prefixes[: len(COLOURS)]):
        panels[0].plot([], [], MARKERS[which], color=COLOURS[which], label=prefix)
    panels[0].plot([], [], "o", color=GREY, mfc="none", label="hollow: computed")
    picture.legend(loc="outside lower center", ncols=4, columnspacing=1, handletextpad=0.2)
    picture.story = "; ".join(stories) + "."
    return picture


@house_style()
def policies_figure(runs: Sequence[Routed], num_replicas: int, kind: str) -> Picture:
    """Hit rate, TTFT at p50 and p99, and the requests of the busiest replica, by policy."""
    picture = Picture(figsize=(WIDTH, 3 * (0.8 + 0.28 * len(runs))), layout="constrained")
    hits, times, loads = picture.subplots(3, 1, sharey=True)
    rows = range(len(runs))
    bars = hits.barh(rows, [100 * run.hit_rate for run in runs], 0.55, color=BLUE)
    hits.bar_label(bars, [f"{run.hit_rate:.0%}" for run in runs], padding=3)
    hits.set(title="hit rate", xlabel="% of prompt tokens", xlim=(0, 115))
    for percent, mark, fill in ((50, "o", BLUE), (99, "D", "none")):
        values = [1e3 * run.ttft(percent) for run in runs]
        times.plot(values, rows, mark, color=BLUE, mfc=fill, mew=2, label=f"p{percent}")
    times.set(title=f"TTFT ({kind})", xlabel="ms (logarithmic)", xscale="log")
    times.xaxis.set_major_formatter(plain_number)
    times.xaxis.set_minor_formatter("")
    times.legend(loc="lower right", bbox_to_anchor=(1, 0.97), ncols=2, borderaxespad=0)
    most = [max(run.counts(num_replicas)) for run in runs]
    bars = loads.barh(rows, most, 0.55, color=GREY)
    loads.bar_label(bars, [f"{count:,}" for count in most], padding=3)
    loads.set(title="busiest replica", xlabel="requests", xlim=(0, 1.2 * max(most)))
    hits.set_yticks(rows, [run.policy for run in runs])
    hits.set_ylim(len(runs) - 0.5, -0.5)
    picture.story = "; ".join(
        f"{run.policy}: hit rate {run.hit_rate:.0%}, TTFT p50 {1e3 * run.ttft(50):.0f} ms, p99 "
        f"{1e3 * run.ttft(99):.0f} ms, at most {count:,} requests on one replica"
        for run, count in zip(runs, most, strict=True)
    ) + "."  # fmt: skip
    return picture


@house_style()
def hang_figure(runs: Mapping[str, Sequence[Asked]]) -> Picture:
    """Seconds that each request waited, over when it came; shaded while a replica hangs."""
    picture, axes = new_picture("A replica that never answers (virtual clock)",
                                "seconds", "seconds until the answer", WIDTH, 3.6)  # fmt: skip
    stories = []
    axes.axvspan(*HANGS, color=GREY, alpha=0.2, lw=0, label="replica 0 hangs")
    for (name, asked), colour, mark in zip(runs.items(), (VERMILLION, BLUE), "xo", strict=False):
        slow = [one for one in asked if one.tried[0] != one.tried[-1]]
        axes.plot([one.at for one in asked], [one.waited_s for one in asked], mark, color=colour,
                  mfc="none", markersize=7 if mark == "o" else 5, label=name)  # fmt: skip
        stories.append(f"{name}: {len(slow)} of {len(asked)} requests waited for a time-out")
    axes.set_ylim(0, None)
    picture.legend(loc="outside lower center", ncols=3)
    picture.story = "; ".join(stories) + "."
    return picture


@house_style()
def sessions_figure(moves: Mapping[str, tuple[Sequence[int], Sequence[int]]], num_replicas: int,
                    lost: int) -> Picture:  # fmt: skip
    """Sessions on replicas, before (hollow) and after (filled) replica `lost` has died: a line
    for each that moved. `moves` has both, by way of choosing."""
    picture = Picture(figsize=(WIDTH, 2.1 * len(moves) + 0.7), layout="constrained")
    panels = picture.subplots(len(moves), 1, sharex=True, squeeze=False)[:, 0]
    stories = []
    for axes, (name, (before, after)) in zip(panels, moves.items(), strict=True):
        moved = [i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        own = sum(one == lost for one in before)
        for i in moved:
            needed = before[i] == lost
            axes.plot([i, i], [before[i], after[i]], color=BLUE if needed else VERMILLION,
                      linewidth=1.2, linestyle="-" if needed else ":")  # fmt: skip
        axes.plot(range(len(before)), before, "o", color=GREY, mfc="none", markersize=6)
        axes.plot(moved, [after[i] for i in moved], "o", color=BLUE, markersize=5)
        axes.axhspan(lost - 0.35, lost + 0.35, color=GREY, alpha=0.2, lw=0)
        names = [f"r{i} (lost)" if i == lost else f"r{i}" for i in range(num_replicas)]
        axes.set_yticks(range(num_replicas), names)
        axes.set_ylim(num_replicas - 0.5, -0.5)
        axes.set_title(f"{name}: {len(moved)} of {len(before)} sessions move, {own} have to")
        stories.append(
            f"{name}: {len(moved)} of {len(before)} sessions move, {own} were on the lost one"
        )
    panels[-1].set_xlabel("session (hollow: before, filled: after; dotted: for nothing)")
    picture.story = "; ".join(stories) + "."
    return picture
