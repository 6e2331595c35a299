"""The figures of notebook 07: processes, the states of a request, what was measured."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from labkit.workbook.plots import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    VERMILLION,
    Picture,
    house_style,
    new_picture,
    plain_number,
)

ROUND = "round,pad=0.02,rounding_size=0.08"


def box(axes: Axes, x, y, width, height, text, colour=GREY, style="-", bold=False) -> None:
    """A box with its text in the middle; x and y are its lower left corner."""
    axes.add_patch(
        FancyBboxPatch(
            (x, y), width, height, boxstyle=ROUND, fill=False, edgecolor=colour, linestyle=style,
            linewidth=1.6,
        )
    )  # fmt: skip
    axes.text(
        x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9,
        fontweight="bold" if bold else "normal", linespacing=1.35,
    )  # fmt: skip


def arrow(axes: Axes, begin, end, text="", colour=GREY, style="-", bend=0.0, shift=(0, 0)) -> None:
    """From a point to another, with words at its middle."""
    axes.add_patch(
        FancyArrowPatch(
            begin, end, arrowstyle="-|>", mutation_scale=11, color=colour, linestyle=style,
            connectionstyle=f"arc3,rad={bend}", linewidth=1.4, shrinkA=1, shrinkB=1,
        )
    )  # fmt: skip
    middle = ((begin[0] + end[0]) / 2 + shift[0], (begin[1] + end[1]) / 2 + shift[1])
    axes.text(*middle, text, ha="center", va="center", fontsize=8.5, color=colour)


def blank(title: str, width: float, height: float, right: float, top: float):
    """A picture to draw boxes in, without axes."""
    picture, axes = new_picture(title, "", "", width=width, height=height)
    axes.set_axis_off()
    axes.set_xlim(0, right)
    axes.set_ylim(0, top)
    return picture, axes


@house_style()
def map_figure() -> Picture:
    """Client, API process, engine process: what lives where, and what crosses."""
    picture, axes = blank("Three parties, two boundaries", 9.0, 3.7, 9.0, 3.7)
    box(axes, 0.1, 1.1, 1.1, 1.3, "client\n\nits label,\nits patience", GREY, "--")
    box(axes, 2.1, 0.15, 2.9, 3.2, "", BLUE)
    axes.text(3.55, 3.12, "API process: HTTP and text", ha="center", fontsize=9.5, weight="bold")
    box(axes, 2.3, 2.2, 2.5, 0.6, "Registry: tickets, choices", BLUE)
    box(axes, 2.3, 1.3, 2.5, 0.6, "detokenizer, stop strings", BLUE)
    box(axes, 2.3, 0.4, 2.5, 0.6, "EngineClient: lives, deaths", BLUE)
    box(axes, 6.6, 0.15, 2.3, 3.2, "", ORANGE)
    axes.text(7.75, 3.12, "engine process: tokens", ha="center", fontsize=9.5, weight="bold")
    box(axes, 6.8, 2.2, 1.9, 0.6, "run, EngineLoop", ORANGE)
    box(axes, 6.8, 1.3, 1.9, 0.6, "Scheduler", ORANGE)
    box(axes, 6.8, 0.4, 1.9, 0.6, "blocks, model, device", ORANGE)
    arrow(axes, (1.25, 2.1), (2.05, 2.1), "JSON", shift=(0, 0.16))
    arrow(axes, (2.05, 1.4), (1.25, 1.4), "SSE", shift=(0, 0.16))
    arrow(axes, (5.05, 2.5), (6.55, 2.5), "Add, Abort, Look, Stop", shift=(0, 0.18))
    arrow(axes, (6.55, 1.6), (5.05, 1.6), "Step: all tokens\nof one step", shift=(0, 0.28))
    axes.text(5.8, 0.75, "msgpack over\nZeroMQ", ha="center", va="center", fontsize=8.5)
    picture.story = (
        "A client talks JSON and server-sent events with the API process, which holds tickets and "
        "text; the API sends Add, Abort, Look and Stop to the engine process, which holds "
        "scheduler, blocks and model, and answers with one Step message for all tokens of a step."
    )
    return picture


@house_style()
def life_figure() -> Picture:
    """The states of a request, and the five ways out."""
    picture, axes = blank("The life of a request", 9.0, 3.5, 9.0, 3.5)
    box(axes, 0.1, 1.9, 1.2, 0.7, "arrives", GREY, "--")
    box(axes, 2.3, 1.9, 1.3, 0.7, "WAITING\nno blocks", BLUE)
    box(axes, 4.7, 1.9, 1.3, 0.7, "RUNNING\nblocks, a slot", GREEN)
    box(axes, 4.55, 0.2, 1.6, 0.7, "PREEMPTED\nno slot", ORANGE)
    box(axes, 7.4, 1.9, 1.4, 0.7, "FINISHED\nnothing", VERMILLION)
    box(axes, 0.1, 0.2, 1.2, 0.7, "400 or 429", GREY, "--")
    arrow(axes, (1.35, 2.25), (2.25, 2.25), "accepted", shift=(0, 0.15))
    arrow(axes, (0.7, 1.85), (0.7, 0.95), "refused", shift=(0.4, 0))
    arrow(axes, (3.65, 2.25), (4.65, 2.25), "admitted", shift=(0, 0.15))
    arrow(axes, (5.1, 1.85), (5.1, 0.95), "blocks\nneeded", shift=(-0.4, 0))
    arrow(axes, (5.6, 0.95), (5.6, 1.85), "resumed", shift=(0.42, 0))
    ends = "stop, length, error,\nabort, deadline"
    arrow(axes, (6.05, 2.25), (7.35, 2.25), ends, shift=(0, 0.26))
    arrow(axes, (2.95, 2.65), (8.1, 2.65), "abort, deadline", VERMILLION, "--", -0.16, (0, 0.6))
    arrow(axes, (6.2, 0.55), (8.1, 1.85), "abort, deadline", VERMILLION, "--", 0.25, (0.95, -0.25))
    picture.story = (
        "arrives → WAITING → RUNNING ⇄ PREEMPTED → FINISHED; abort and deadline lead to FINISHED "
        "from every state, and there nothing is held; a refused request never gets in line."
    )
    return picture


HATCH = {"in-process": "", "thread": "//", "process": "xx"}
COLOUR = {"in-process": SKY, "thread": ORANGE, "process": BLUE}


@house_style()
def homes_figure(cases: Mapping[str, Sequence[Mapping]]) -> Picture:
    """Tokens/s with the engine in each home, a panel for each case; rows of `bench ipc`."""
    picture = Picture(figsize=(9.0, 2.9), layout="constrained")
    panels, stories = picture.subplots(1, len(cases), squeeze=False)[0], []
    for axes, (title, rows) in zip(panels, cases.items(), strict=True):
        names = [row["home"] for row in rows]
        speeds = [row["tokens_per_s"] for row in rows]
        for place, (name, speed) in enumerate(zip(names, speeds, strict=True)):
            axes.barh(place, speed, 0.6, color=COLOUR[name], hatch=HATCH[name], edgecolor="white")
            axes.annotate(plain_number(speed), (speed, place), (4, 0),
                          textcoords="offset points", va="center")  # fmt: skip
        axes.set_yticks(range(len(names)), names if axes is panels[0] else [""] * len(names))
        axes.invert_yaxis()
        axes.set_xlim(0, 1.4 * max(speeds))
        axes.set_xlabel("tokens/s")
        axes.set_title(title, fontsize=10)
        axes.grid(axis="y", visible=False)
        axes.locator_params(axis="x", nbins=4)
        told = ", ".join(f"{n} {plain_number(s)}" for n, s in zip(names, speeds, strict=True))
        stories.append(f"{title}: {told} tokens/s".replace("\n", " "))
    picture.story = "; ".join(stories) + "."
    return picture


PANELS = (
    ("device busy", "busy", 100, "%"),
    ("tokens/s", "tokens_per_s", 1, ""),
    ("device, a step", "step_s", 1e3, " ms"),
    ("queue p50", "queue_p50_s", 1e3, " ms"),
    ("TTFT p50", "ttft_p50_s", 1e3, " ms"),
    ("KV peak", "kv_peak", 100, "%"),
)


@house_style()
def bottlenecks_figure(rows: Sequence[Mapping]) -> Picture:
    """The baseline and each cause, one figure a panel; rows of `bench bottleneck`."""
    picture = Picture(figsize=(10.5, 3.4), layout="constrained")
    picture.suptitle(
        "Six causes, one at a time (device modelled, the rest measured)", color=GREY, x=0.01,
        ha="left", fontsize=12, fontweight="bold",
    )  # fmt: skip
    panels = picture.subplots(1, len(PANELS))
    for axes, (title, key, scale, unit) in zip(panels, PANELS, strict=True):
        values = [scale * (row[key] or 0.0) for row in rows]
        for place, value in enumerate(values):
            is_base = place == 0
            axes.barh(place, value, 0.65, color=GREY if is_base else BLUE,
                      hatch="//" if is_base else "", edgecolor="white")  # fmt: skip
            text = plain_number(value) if value >= 1 else f"{value:.1f}"
            axes.annotate(text + unit, (value, place), (3, 0), textcoords="offset points",
                          va="center", fontsize=8)  # fmt: skip
        names = [row["cause"] for row in rows]
        axes.set_yticks(range(len(rows)), names if axes is panels[0] else [""] * len(rows))
        axes.invert_yaxis()
        axes.set_xlim(0, 1.55 * max(values) or 1)
        axes.set_title(title, fontsize=10)
        axes.grid(axis="y", visible=False)
        axes.set_xticks([])
    picture.story = "; ".join(
        f"{row['cause']}: device busy {row['busy']:.0%}, {row['tokens_per_s']:,.0f} tokens/s"
        for row in rows
    ) + "."  # fmt: skip
    return picture


@house_style()
def death_figure(death) -> Picture:
    """What clients and operators see after the engine was killed, on one line of time; `death` is
    a `processes_life.Death`."""
    picture, axes = new_picture(
        "The engine is killed at 0 (measured)", "seconds (logarithmic)", "", height=2.9
    )
    seen = [
        ("last stream has its error event", max(death.errors), VERMILLION, "X"),
        ("/health says 503", death.unhealthy, ORANGE, "s"),
        ("/health says 200 again", death.ready, GREEN, "o"),
        ("a new request has a token", death.answer, BLUE, "D"),
    ]
    for place, (_, when, colour, marker) in enumerate(seen):
        axes.plot([0.001, when], [place, place], color=colour, linewidth=1)
        axes.plot(when, place, marker, color=colour)
        axes.annotate(f"{when:.2f} s", (when, place), (9, 0), textcoords="offset points",
                      va="center")  # fmt: skip
    axes.axvline(2.0, color=GREY, linestyle=":")
    axes.annotate("2 s: promised", (2.0, -0.55), (4, 0), textcoords="offset points", fontsize=8.5,
                  va="center")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(0.001, max(40.0, 4 * death.answer))
    axes.set_yticks(range(len(seen)), [name for name, *_ in seen])
    axes.set_ylim(len(seen) - 0.5, -0.9)
    axes.xaxis.set_major_formatter(plain_number)
    axes.grid(axis="y", visible=False)
    picture.story = "; ".join(f"{name} after {when:.2f} s" for name, when, *_ in seen) + "."
    return picture
