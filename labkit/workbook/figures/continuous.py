"""The figures of notebook 06: slots used and wasted, and measures side by side."""

from collections.abc import Mapping, Sequence

from matplotlib.patches import Patch, Rectangle

from labkit.workbook.plots import (
    COLOURS,
    GREY,
    Picture,
    house_style,
    plain_number,
)

Rows = Sequence[Sequence[str | None]]  # a row for each slot: who computes in each step


def used(rows: Rows) -> tuple[int, int, int]:
    """Steps, slots that computed something, slots that there were."""
    steps = len(rows[0])
    busy = sum(name is not None for row in rows for name in row)
    return steps, busy, steps * len(rows)


@house_style()
def slots_figure(batches: Mapping[str, Rows], title: str) -> Picture:
    """Who computes in which slot and step, one panel for each way of batching.

    A hatched place is one that was paid for and computed nothing.
    """
    picture = Picture(figsize=(8.5, 1.0 + 1.65 * len(batches)), layout="constrained")
    panels = picture.subplots(len(batches), 1, sharex=True, squeeze=False)[:, 0]
    longest = max(len(rows[0]) for rows in batches.values())
    colours = colours_of(batches)
    for axes, (name, rows) in zip(panels, batches.items(), strict=True):
        draw_slots(axes, rows, colours)
        axes.set(xlim=(0, longest), ylim=(len(rows), 0), ylabel="slot")
        steps, busy, places = used(rows)
        axes.set_title(f"{name}: {steps} steps, {places - busy} of {places} slots wasted", size=11)
        axes.set_yticks([slot + 0.5 for slot in range(len(rows))], range(1, len(rows) + 1))
        axes.grid(visible=False)
    panels[-1].set_xlabel("step")
    wasted = Patch(facecolor="none", edgecolor=GREY, hatch="////", label="wasted")
    panels[0].legend(handles=[wasted], loc="lower right", bbox_to_anchor=(1, 1), fontsize=9)
    picture.suptitle(title, x=0.01, ha="left", size=12, weight="bold", color=GREY)
    picture.story = story_of_slots(batches)
    return picture


def story_of_slots(batches: Mapping[str, Rows]) -> str:
    told = []
    for name, rows in batches.items():
        steps, busy, places = used(rows)
        told.append(f"{name}: {steps} steps, {busy} of {places} slots used")
    return "; ".join(told) + "."


def colours_of(batches: Mapping[str, Rows]) -> dict[str, str]:
    names = sorted({name for rows in batches.values() for row in rows for name in row if name})
    return {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}


def draw_slots(axes, rows: Rows, colours: Mapping[str, str]) -> None:
    for slot, row in enumerate(rows):
        for step, name in enumerate(row):
            busy = {"facecolor": colours[name]} if name else {"facecolor": "none", "hatch": "////"}
            edge = "white" if name else GREY
            axes.add_patch(Rectangle((step, slot), 1, 1, edgecolor=edge, linewidth=0.7, **busy))
            if name:
                style = {"ha": "center", "va": "center", "fontsize": 9, "color": "white"}
                axes.text(step + 0.5, slot + 0.5, name, **style)


@house_style()
def measures_figure(rows: Mapping[str, Mapping[str, float]], title: str) -> Picture:
    """A bar for each row and measure: `rows` is {name: {measure with its unit: value}}.

    Each measure has a panel and a scale of its own; the number stands at the end of its bar.
    """
    names, measures = list(rows), list(next(iter(rows.values())))
    height = 1.2 + 0.42 * len(names)
    picture = Picture(figsize=(8.5, height), layout="constrained")
    panels = picture.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, measure, colour in zip(panels, measures, COLOURS, strict=False):
        values = [rows[name][measure] for name in names]
        axes.barh(range(len(names)), values, height=0.6, color=colour)
        for place, value in enumerate(values):
            axes.annotate(
                plain_number(value), (value, place), (4, 0), textcoords="offset points", va="center"
            )
        axes.set(xlabel=measure, xlim=(0, 1.3 * max(values) or 1))
        axes.xaxis.set_major_locator(few_ticks())
        axes.xaxis.set_major_formatter(plain_number)
        axes.grid(axis="y", visible=False)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    picture.suptitle(title, x=0.01, ha="left", size=12, weight="bold", color=GREY)
    picture.story = "; ".join(
        f"{name}: " + ", ".join(f"{m} {plain_number(v)}" for m, v in values.items())
        for name, values in rows.items()
    ) + "."  # fmt: skip
    return picture


def few_ticks():
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=3)
