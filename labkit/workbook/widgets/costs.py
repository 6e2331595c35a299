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
from labkit.workbook.widgets.sliders import Sliders, slider

RATES = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 56, 64)
BUDGETS = (128, 256, 512, 1024, 2048, 4096)


class CostExplorer(Sliders):
    """Card, load, budget and promises; a figure and a line of words. `point` is what they give."""

    title = "What a good token costs"
    how = "sliders for card, load, token budget, TTFT, TPOT"

    def __init__(self):
        inputs = {
            "card": widgets.Dropdown(
                options=[name for name in CARDS if name in PRICES], value=CARD, description="card"
            ),
            "rate": widgets.SelectionSlider(options=RATES, value=36, description="requests/s"),
            "budget": widgets.SelectionSlider(
                options=BUDGETS, value=1024, description="token budget"
            ),
            "ttft": slider(100, 5000, 100, "TTFT (ms)", 1000 * INTERACTIVE.ttft),
            "tpot": slider(5, 200, 5, "TPOT (ms)", 1000 * INTERACTIVE.tpot),
        }
        super().__init__(inputs, width=750)

    def draw(self) -> Picture:
        chosen = self.values
        slo = SLO(ttft=chosen["ttft"] / 1000, tpot=chosen["tpot"] / 1000)
        self.point = priced(chosen["rate"], chosen["budget"], slo, card=chosen["card"])
        return bill_figure(self.point, chosen["card"], slo)


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
    show(explorer.picture, explorer)
