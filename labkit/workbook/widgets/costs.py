"""Sliders into the bill: each move serves the load anew on a modelled card, within a second."""

import math

import ipywidgets as widgets

from labkit.measure.cost import PRICES
from labkit.measure.experiments.costs_simulated import CARD, INTERACTIVE, Priced, priced
from labkit.measure.simulate.cards import CARDS
from labkit.measure.slo import SLO
from labkit.workbook.figures.costs import WIDTH
from labkit.workbook.plots import BLUE, ORANGE, Picture, house_style, new_picture, plain_number
from labkit.workbook.widgets.drawn import show

RATES = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64)
BUDGETS = (128, 256, 512, 1024, 2048, 4096)


class CostExplorer(widgets.VBox):
    """Card, load, budget and promises; a figure and a line of words. `point` is what they give."""

    def __init__(self):
        names = [name for name in CARDS if name in PRICES]
        self.inputs = {
            "card": widgets.Dropdown(options=names, value=CARD, description="card"),
            "rate": widgets.SelectionSlider(options=RATES, value=36, description="requests/s"),
            "budget": widgets.SelectionSlider(
                options=BUDGETS, value=1024, description="token budget"
            ),
            "ttft": slider(100, 5000, 100, 1000 * INTERACTIVE.ttft, "TTFT (ms)"),
            "tpot": slider(5, 200, 5, 1000 * INTERACTIVE.tpot, "TPOT (ms)"),
        }
        self.image = widgets.Image(format="png", layout={"width": "100%", "max_width": "640px"})
        self.words = widgets.HTML()
        for field in self.inputs.values():
            field.continuous_update = False  # a drag is one move, a key is one too
            field.style.description_width = "7.5em"
            field.layout.width = "auto"
            field.observe(self.serve, "value")
        columns = "repeat(auto-fit, minmax(min(100%, 300px), 1fr))"
        grid = widgets.GridBox(
            [*self.inputs.values()],
            layout={"grid_template_columns": columns, "grid_gap": "2px 12px", "max_width": "750px"},
        )
        super().__init__([grid, self.image, self.words])
        self.serve()

    def serve(self, change: object = None) -> None:
        """Simulates what the sliders say, and shows what it costs."""
        chosen = {name: field.value for name, field in self.inputs.items()}
        slo = SLO(ttft=chosen["ttft"] / 1000, tpot=chosen["tpot"] / 1000)
        self.point = priced(chosen["rate"], chosen["budget"], slo, card=chosen["card"])
        picture = bill_figure(self.point, chosen["card"], slo)
        png, _ = picture.drawn()
        self.image.value, self.image.alt = png, picture.story
        self.words.value = f'<div role="status" style="line-height:1.45">{picture.story}</div>'

    def __repr__(self) -> str:
        names = "card, load, token budget, TTFT, TPOT"  # text is cut at 110 characters
        return f"[What a good token costs: sliders for {names}; needs a running kernel]"


def slider(least: int, most: int, step: int, value: float, name: str) -> widgets.IntSlider:
    return widgets.IntSlider(min=least, max=most, step=step, value=int(value), description=name)


@house_style()
def bill_figure(point: Priced, card: str, slo: SLO) -> Picture:
    """Tokens a second, and the good ones among them; the costs of both in words."""
    picture, axes = new_picture(
        f"One {card} (modelled)", "output tokens a second; filled: within the SLO", "",
        width=WIDTH, height=1.6,
    )  # fmt: skip
    axes.barh(0, point.tokens_per_s, 0.6, facecolor="none", edgecolor=ORANGE, linewidth=1.5)
    axes.barh(0, point.good_tokens_per_s, 0.6, color=BLUE)
    axes.set(yticks=[], ylim=(-0.6, 0.6))
    axes.xaxis.set_major_formatter(plain_number)
    good = f"{point.good_cost:.2f} dollars" if math.isfinite(point.good_cost) else "no price at all"
    picture.story = (
        f"Modelled. {point.rate} requests a second, {point.budget} tokens in a step, {slo}: "
        f"{point.attainment:.0%} of the requests meet it. A million tokens: {point.cost:.2f} "
        f"dollars; a million good ones: {good}."
    )
    return picture


def cost_explorer() -> None:
    """What a million good tokens cost on one modelled card: change the load and the promises."""
    explorer = CostExplorer()
    point, slo = explorer.point, INTERACTIVE
    show(bill_figure(point, CARD, slo), explorer)
