"""The slider on which a learner predicts, and the line of text in its place without widgets."""

import ipywidgets as widgets

from labkit.workbook.catalogue import text


class Prediction(widgets.VBox):
    """A label and a slider from `low` to `high`. `keep` receives each value it is moved to."""

    def __init__(self, low: float, high: float, step: float, unit: str, before, keep):
        self.unit = unit
        self.label = widgets.Label()
        self.slider = widgets.FloatSlider(
            value=low if before is None else before,
            min=low,
            max=high,
            step=step,
            continuous_update=False,
            readout_format=".3g",
            layout=widgets.Layout(width="28em"),
        )
        super().__init__([self.label, widgets.HBox([self.slider, widgets.Label(unit)])])
        self.say(before)
        self.slider.observe(lambda change: (keep(change["new"]), self.say(change["new"])), "value")

    def say(self, value: float | None) -> None:
        """What has been predicted so far."""
        self.label.value = (
            text("predict.ask")
            if value is None
            else text("predict.kept", value=value, unit=self.unit)
        )

    def __repr__(self) -> str:
        """For pages without a kernel: what could be moved here, and what was."""
        return f"{self.label.value} [{self.slider.min:g} to {self.slider.max:g} {self.unit}]"
