"""Sliders into the simulator: each move serves the designed workload anew, within a second."""

import ipywidgets as widgets

from labkit.engine.policies import POLICIES
from labkit.workbook.figures.designer import designer_figure
from labkit.workbook.plots import Picture
from labkit.workbook.widgets.design import CARD, Design, most_blocks, simulate
from labkit.workbook.widgets.drawn import show
from labkit.workbook.widgets.sliders import Sliders, slider

STEPS_OF_RATE = (0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16)
BUDGETS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
FEWEST_BLOCKS = 400  # few enough to run out, enough for all but the very longest requests


class Designer(Sliders):
    """Sliders, a figure, a line of words. `picture` is the figure of what the sliders say."""

    title = "Workload designer"
    how = "sliders for rate, lengths, classes, budget, blocks, policy"

    def __init__(self, design: Design):
        share = {"min": 0.0, "max": 1.0, "step": 0.1, "readout_format": ".0%"}
        inputs = {
            "rate": widgets.SelectionSlider(options=STEPS_OF_RATE, description="requests/s"),
            "prompt_tokens": slider(100, 2000, 100, "prompt tokens"),
            "output_tokens": slider(20, 400, 20, "output tokens"),
            "chat_share": widgets.FloatSlider(**share, description="urgent chat"),
            "max_num_batched_tokens": widgets.SelectionSlider(
                options=BUDGETS, description="token budget"
            ),
            "num_blocks": slider(FEWEST_BLOCKS, most_blocks() // 100 * 100, 100, "KV blocks"),
            "policy": widgets.Dropdown(options=[*POLICIES], description="policy"),
        }
        for name, field in inputs.items():
            field.value = getattr(design, name)
        super().__init__(inputs, width=950)

    @property
    def design(self) -> Design:
        """What the sliders say."""
        return Design(**self.values)

    def draw(self) -> Picture:
        return designer_figure(simulate(self.design))


def workload_designer(policy: str = "priority") -> None:
    """Chat and batch traffic on one modelled replica: design it, and see what saturates.

    Lengths are the means of batch; chat has a quarter of its prompt and half of its output.
    Raises ValueError for a policy that there is not.
    """
    design = Design(policy=policy)
    show(designer_figure(simulate(design), f"One {CARD}, two classes, {policy}"), Designer(design))
