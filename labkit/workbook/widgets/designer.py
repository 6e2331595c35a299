"""Sliders into the simulator: each move serves the designed workload anew, within a second."""

from dataclasses import fields

import ipywidgets as widgets

from labkit.engine.policies import POLICIES
from labkit.workbook.figures.designer import designer_figure
from labkit.workbook.widgets.design import CARD, Design, most_blocks, simulate
from labkit.workbook.widgets.drawn import show

STEPS_OF_RATE = (0.25, 0.5, 0.75, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10, 12, 16)
BUDGETS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
FIELDS = [field.name for field in fields(Design)]
FEWEST_BLOCKS = 400  # few enough to run out, enough for all but the very longest requests


class Designer(widgets.VBox):
    """Sliders, a figure, a line of words. `picture` is the figure of what the sliders say."""

    def __init__(self, design: Design):
        share = {"min": 0.0, "max": 1.0, "step": 0.1, "readout_format": ".0%"}
        self.inputs = {
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
        self.image = widgets.Image(format="png", layout={"width": "100%", "max_width": "950px"})
        self.words = widgets.HTML()
        for name, field in self.inputs.items():
            field.value = getattr(design, name)
            field.continuous_update = False  # a drag is one move, a key is one too
            field.style.description_width = "7.5em"
            field.layout.width = "auto"
            field.observe(self.serve, "value")
        columns = "repeat(auto-fit, minmax(min(100%, 300px), 1fr))"
        grid = widgets.GridBox(
            [*self.inputs.values()],
            layout={"grid_template_columns": columns, "grid_gap": "2px 12px", "max_width": "950px"},
        )
        super().__init__([grid, self.image, self.words])
        self.serve()

    @property
    def design(self) -> Design:
        """What the sliders say."""
        return Design(**{name: self.inputs[name].value for name in FIELDS})

    def serve(self, change: object = None) -> None:
        """Simulates the design, and shows what came of it."""
        self.picture = designer_figure(simulate(self.design))
        png, size = self.picture.drawn()
        self.image.value, self.image.alt = png, self.picture.story
        self.words.value = f'<div role="status" style="line-height:1.45">{self.picture.story}</div>'

    def __repr__(self) -> str:
        names = "rate, lengths, classes, budget, blocks, policy"  # text is cut at 110 characters
        return f"[Workload designer: sliders for {names}; needs a running kernel]"


def slider(least: int, most: int, step: int, name: str) -> widgets.IntSlider:
    return widgets.IntSlider(min=least, max=most, step=step, description=name)


def workload_designer(policy: str = "priority") -> None:
    """Chat and batch traffic on one modelled replica: design it, and see what saturates.

    Lengths are the means of batch; chat has a quarter of its prompt and half of its output.
    Raises ValueError for a policy that there is not.
    """
    design = Design(policy=policy)
    show(designer_figure(simulate(design), f"One {CARD}, two classes, {policy}"), Designer(design))
