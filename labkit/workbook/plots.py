"""The figures of the workbook in one style; pure functions from data to a `Picture`.

A picture carries one line of text that tells what is to be seen in it, for readers who can't
see it and for front ends without graphics. The background is transparent and the text a middle
grey, so that it reads on light and on dark pages. Colours are those of Okabe and Ito, which stay
apart for colour-blind eyes; shape or wording always says the same as the colour.
"""

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from labkit.measure.roofline import Cost, Machine, step_time
from labkit.workbook import pictures

BLUE, ORANGE, GREEN, VERMILLION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
SKY, PURPLE, GREY = "#56B4E9", "#CC79A7", "#7B7B7B"
COLOURS = (BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE)
MARKERS = "osD^vP"

STYLE = {
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.titlecolor": GREY,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "lines.markersize": 8,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so a figure looks the same everywhere
    "font.size": 10.5,
}
DPI = 100  # on the page; drawn at twice that, for sharp screens


class Picture(Figure):
    """A matplotlib figure that shows itself in a notebook, with a line of text beside it."""

    story = ""

    def png(self, dpi: int = 2 * DPI) -> bytes:
        """The picture as a file."""
        file = io.BytesIO()
        with house_style(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands for it
            self.savefig(file, format="png", dpi=dpi)
        return file.getvalue()

    def drawn(self) -> tuple[bytes, dict[str, int | str]]:
        """The file, its size on the page, and the words for who can't see it."""
        width, height = self.get_size_inches() * DPI
        size = {"width": int(width), "height": int(height)}
        return self.png(), size | {"alt": self.story}

    def _repr_png_(self) -> tuple[bytes, dict[str, int | str]]:
        """What a notebook calls to show it as the outcome of a cell."""
        drawn = self.drawn()
        pictures.shown(drawn[0], self.story, smaller=lambda: self.png(DPI))
        return drawn

    def __repr__(self) -> str:
        return self.story

    __str__ = __repr__


def house_style():
    """What figures are drawn in: `with house_style():`, or `@house_style()` over a function."""
    return matplotlib.rc_context(STYLE)


@house_style()
def new_picture(
    title: str, xlabel: str, ylabel: str, width: float = 7.5, height: float = 4.2
) -> tuple[Picture, Axes]:
    """An empty picture and its axes; sizes in inches. To be called in `house_style()`."""
    picture = Picture(figsize=(width, height), layout="constrained")
    return picture, picture.add_subplot(title=title, xlabel=xlabel, ylabel=ylabel)


def plain_number(value: float, _position: int | None = None) -> str:
    """8.67, 54, 1,200: what a person would write. Serves as the formatter of an axis, too."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class Step:
    """A forward pass to place under the roofs: what it needs, and how long it was seen to take."""

    name: str
    cost: Cost
    seconds: float | None = None  # measured; None draws only what the roofs allow

    def story(self, least: float, bound: str) -> str:
        """One line for the legend; `least` and `bound` are what `step_time` says."""
        line = f"{self.name}: at least {1e3 * least:.0f} ms ({bound})"
        return line + (f", measured {1e3 * self.seconds:.0f} ms" if self.seconds else "")


@house_style()
def roofline_figure(
    machine: Machine, steps: Sequence[Step], step_time: Callable = step_time
) -> Picture:
    """The two measured roofs of a machine, and where forward passes lie under them.

    A hollow mark lies on the roof: as fast as this step can be. The filled one below was measured.
    `step_time` says how long a step takes at least; a learner's own may stand in.
    """
    picture, axes = new_picture(
        "Roofline of this machine (measured)", "intensity: FLOP per byte moved", "speed: GFLOP/s"
    )
    intensities = [step.cost.intensity for step in steps]
    left = min([0.1, *(x / 4 for x in intensities)])
    right = max([100 * machine.ridge, *(8 * x for x in intensities)])
    peak, slope = machine.peak_flops / 1e9, machine.bandwidth / 1e9
    axes.loglog([left, machine.ridge, right], [left * slope, peak, peak], color=GREY)
    axes.axvline(machine.ridge, color=GREY, linestyle=":", linewidth=1)
    middle = (left * machine.ridge) ** 0.5  # of the slope, on a logarithmic axis
    roofs = [(f"compute: {peak:.0f} GFLOP/s", (right, peak), (-5, 9), "right")]
    roofs += [(f"memory: {slope:.0f} GB/s", (middle, middle * slope), (12, -8), "left")]
    for label, point, shift, side in roofs:
        axes.annotate(label, point, shift, textcoords="offset points", ha=side)
    stories = []
    for step, colour, marker in zip(steps, COLOURS, MARKERS, strict=False):
        flops = step.cost.num_flops
        least, bound = step_time(flops, step.cost.num_bytes, machine.peak_flops, machine.bandwidth)
        stories.append(step.story(least, bound))
        roof = flops / least / 1e9
        axes.plot(step.cost.intensity, roof, marker, mfc="none", mec=colour, mew=2)
        if step.seconds:
            seen = flops / step.seconds / 1e9
            axes.plot([step.cost.intensity] * 2, [seen, roof], color=colour, linewidth=1)
            axes.plot(step.cost.intensity, seen, marker, color=colour)
        axes.plot([], [], marker, color=colour, label=stories[-1])
    axes.set_xlim(left, right)
    axes.set_ylim(left * slope / 2, 3 * peak)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain_number)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), handletextpad=0.4)
    picture.story = "; ".join(stories) + "."
    return picture


@dataclass(frozen=True)
class Rung:
    """A speed on the ladder, and whether it was "measured", "recorded" or "modelled"."""

    name: str
    tokens_per_s: float
    kind: str

    def story(self) -> str:
        """One line about it."""
        name = self.name.replace("\n", " ")
        return f"{name}: {plain_number(self.tokens_per_s)} tokens/s ({self.kind})"


@house_style()
def ladder_figure(title: str, rungs: Sequence[Rung]) -> Picture:
    """Tokens/s of rungs and ceilings, one below the other; a filled mark was measured."""
    picture, axes = new_picture(
        title, "tokens per second (logarithmic)", "", height=1.2 + 0.5 * len(rungs)
    )
    speeds = [rung.tokens_per_s for rung in rungs]
    left, right = min(speeds) / 3, max(speeds) * 10
    for row, rung in enumerate(rungs):
        colour, fill = (BLUE, BLUE) if rung.kind == "measured" else (GREY, "none")
        axes.plot([left, rung.tokens_per_s], [row, row], color=colour, linewidth=1)
        axes.plot(rung.tokens_per_s, row, "o", mec=colour, mfc=fill, mew=2)
        label = f"{plain_number(rung.tokens_per_s)}  {rung.kind}"
        axes.annotate(
            label, (rung.tokens_per_s, row), (10, 0), textcoords="offset points", va="center"
        )
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.xaxis.set_major_formatter(plain_number)
    axes.set_yticks(range(len(rungs)), [rung.name for rung in rungs])
    axes.set_ylim(len(rungs) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    picture.story = "; ".join(rung.story() for rung in rungs) + "."
    return picture
