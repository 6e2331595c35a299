"""The frame of a widget whose fields ask a simulation: fields, a figure, a line of words."""

from collections.abc import Mapping

import ipywidgets as widgets

from labkit.workbook.widgets.drawn import placeholder

COLUMNS = "repeat(auto-fit, minmax(min(100%, 300px), 1fr))"  # one, where a page is narrow


class Sliders(widgets.VBox):
    """Each move of one of `inputs` shows the picture that the subclass's `draw()` makes then."""

    title, how = "", ""  # for pages without a kernel

    def __init__(self, inputs: Mapping[str, widgets.Widget], width: int):
        self.inputs = inputs
        most = {"max_width": f"{width}px"}
        self.image = widgets.Image(format="png", layout={"width": "100%", **most})
        self.words = widgets.HTML()
        for field in inputs.values():
            field.continuous_update = False  # a drag is one move, a key is one too
            field.style.description_width = "7.5em"
            field.layout.width = "auto"
            field.observe(self.serve, "value")
        grid = widgets.GridBox(
            [*inputs.values()],
            layout={"grid_template_columns": COLUMNS, "grid_gap": "2px 12px", **most},
        )
        super().__init__([grid, self.image, self.words])
        self.serve()

    @property
    def values(self) -> dict:
        """What the fields say."""
        return {name: field.value for name, field in self.inputs.items()}

    def serve(self, change: object = None) -> None:
        """Shows what the fields say now."""
        self.picture = self.draw()
        png, _ = self.picture.drawn()
        self.image.value, self.image.alt = png, self.picture.story
        self.words.value = f'<div role="status" style="line-height:1.45">{self.picture.story}</div>'

    def __repr__(self) -> str:
        return placeholder(self.title, self.how)  # ipywidgets cuts it at 110 characters


def slider(least: int, most: int, step: int, name: str, value: float | None = None):
    """A slider over whole numbers; at `least` unless told."""
    start = least if value is None else int(value)
    return widgets.IntSlider(min=least, max=most, step=step, description=name, value=start)
