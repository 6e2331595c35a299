"""The ladder: tokens/s, TTFT and memory of every rung, the learner's part beside labkit's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labkit.workbook.plots import (
    BLUE,
    GREY,
    VERMILLION,
    Picture,
    house_style,
    plain_number,
)

PANELS = (("tokens_per_s", "tokens/s (log)", 1), ("ttft_p50_s", "TTFT p50, s (log)", 1),
          ("kv_held_bytes", "KV held, MB", 1e-6))  # fmt: skip


@dataclass(frozen=True)
class Mark:
    """How one kind of row is drawn."""

    name: str
    shape: str
    colour: str
    size: float
    filled: bool = True


OWN = Mark("labkit's own", "o", BLUE, 9)
YOURS = Mark("with your parts", "D", VERMILLION, 7)
PLAIN = Mark("labkit's, with the textbook's attention", "^", GREY, 10, filled=False)


@house_style()
def ladder_figure(
    names: Sequence[str], own: Mapping, yours: Mapping | None, plain: Mapping | None
) -> Picture:
    """Rungs from the first to the newest, from above. Each row has `tokens_per_s`, `ttft_p50_s`,
    `kv_held_bytes` and the `date` on which it was measured; `own` is {rung: row}, the others are
    of the last rung."""
    picture = Picture(figsize=(9.5, 1.9 + 0.42 * len(names)), layout="constrained")
    dates = sorted({row["date"] for row in own.values()})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    picture.suptitle(f"The ladder on this machine (measured {when})", x=0.01, ha="left",
                     fontsize=12, weight="bold")  # fmt: skip
    marks = [(OWN, [(place, own[name]) for place, name in enumerate(names)])]
    last = len(names) - 1
    marks += [(mark, [(last, row)]) for mark, row in ((YOURS, yours), (PLAIN, plain)) if row]
    panels = picture.subplots(1, 3, sharey=True)
    for axes, (key, label, unit) in zip(panels, PANELS, strict=True):
        for mark, points in marks:
            draw(axes, mark, [(place, row[key] * unit) for place, row in points])
        axes.set_xlabel(label)
        axes.grid(axis="y", visible=False)
        limits(axes, [row[key] * unit for _, points in marks for _, row in points], unit == 1)
        axes.xaxis.set_major_formatter(plain_number)
    panels[0].set_yticks(range(len(names)), names)
    panels[0].set_ylim(last + 0.6, -0.6)
    picture.legend(*panels[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
    picture.story = story(names, own, yours)
    return picture


def draw(axes, mark: Mark, points) -> None:
    places, values = [place for place, _ in points], [value for _, value in points]
    fill = mark.colour if mark.filled else "none"
    if mark is OWN:
        axes.hlines(places, 0, values, color=mark.colour, lw=1)
    axes.plot(values, places, ls="none", color=mark.colour, marker=mark.shape, mec=mark.colour,
              mfc=fill, mew=1.8, ms=mark.size, label=mark.name, zorder=3)  # fmt: skip
    if mark is PLAIN:
        return
    above = mark is OWN
    for place, value in points:
        colour = GREY if above else mark.colour
        axes.annotate(plain_number(value), (value, place), (0, 9 if above else -9), color=colour,
                      textcoords="offset points", ha="center", va="bottom" if above else "top",
                      fontsize=9)  # fmt: skip


def limits(axes, values, logarithmic: bool) -> None:
    """Room for the numbers beside the first and the last mark."""
    if logarithmic:
        axes.set_xscale("log")
        axes.set_xlim(min(values) / 3, max(values) * 3)
        axes.xaxis.set_minor_formatter("")
    elif max(values) > 0:
        axes.set_xlim(0, 1.25 * max(values))
    else:
        axes.set_xlim(-0.1, 1)
        axes.set_xticks([0])


def story(names, own, yours) -> str:
    told = [f"{name} {plain_number(own[name]['tokens_per_s'])}" for name in names]
    line = "Tokens/s: " + ", ".join(told)
    if yours:
        line += f"; {names[-1]} with your parts {plain_number(yours['tokens_per_s'])}"
    return line + "."
