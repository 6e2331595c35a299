"""Widgets that draw themselves in the browser: no round trip to the kernel, none needed to play.

The scripts lie beside this file; `data` is what they draw, as plain JSON (`data.py`).
"""

import textwrap
from pathlib import Path

import anywidget
import traitlets
from IPython.display import display

from labkit.workbook.plots import Picture


def file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


class Drawn(anywidget.AnyWidget):
    """`data` is drawn; `place` is where a player stands. For pages without a kernel its text
    says what is here."""

    _css = file("widgets.css")
    data = traitlets.Dict().tag(sync=True)
    place = traitlets.Float(0.0).tag(sync=True)
    how = ""

    def __repr__(self) -> str:
        return placeholder(self.data["title"], self.how)


def placeholder(title: str, how: str) -> str:
    """What stands for a widget where there is no kernel: on an exported page, say."""
    return in_lines(f"[{title}: {how}; needs a running kernel]")


def in_lines(text: str) -> str:
    """`text` in lines that fit a page; a page breaks longer ones in the middle of a word."""
    return textwrap.fill(text, 88)


def script(name: str) -> str:
    return file("common.js") + file(name)


class Timeline(Drawn):
    _esm = script("timeline.js")
    how = "scrub with slider or arrow keys, play with space"


class BlockXRay(Drawn):
    _esm = script("xray.js")
    how = "scrub with slider or arrow keys, play with space"


class StreamingRace(Drawn):
    _esm = script("race.js")
    how = "replay with space, in real time or faster"


class BatchExplorer(Drawn):
    _esm = script("batches.js")
    how = "move the SLO with slider or arrow keys"


def show(picture: Picture, widget: object = None) -> None:
    """The figure, the line of text that tells what is to be seen in it, then what moves it."""
    display(picture)
    print(in_lines(picture.story))
    if widget is not None:
        display(widget)
