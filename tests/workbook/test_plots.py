"""The figures say what was measured and what was modelled, and read on light and on dark."""

from itertools import combinations

import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from labkit.measure.roofline import Cost, Machine
from labkit.workbook import plots

MACHINE = Machine(peak_flops=100e9, bandwidth=10e9)
DECODE = plots.Step("decode", Cost(1e9, 1e9), seconds=0.25)
PREFILL = plots.Step("prefill", Cost(50e9, 1e9))
PICTURES = {
    "roofline": lambda: plots.roofline_figure(MACHINE, [DECODE, PREFILL]),
    "ladder": lambda: plots.ladder_figure(
        "Rungs", [plots.Rung("rung 1", 8.67, "measured"), plots.Rung("a\nroof", 1234, "modelled")]
    ),
}


def luminance(colour):
    def linear(channel):
        return channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = map(linear, to_rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", ["#ffffff", "#111111"])  # JupyterLab's two themes
def test_text_and_marks_stand_out_on_both_pages(page):
    assert contrast(plots.GREY, page) > 4
    assert all(contrast(colour, page) > 2 for colour in plots.COLOURS)


def test_no_colour_is_used_twice():
    assert all(one != other for one, other in combinations(plots.COLOURS, 2))


@pytest.mark.parametrize("name", PICTURES)
def test_every_word_of_a_picture_has_the_colour_that_reads_on_both_pages(name):
    words = [t for t in PICTURES[name]().findobj(Text) if t.get_text()]
    assert words and {t.get_color() for t in words} == {plots.GREY}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_shows_itself_without_pyplot(name):
    png, size = PICTURES[name]()._repr_png_()
    assert png.startswith(b"\x89PNG") and size["width"] == 750


def test_the_roofline_says_what_bounds_each_step_and_what_was_measured():
    assert repr(PICTURES["roofline"]()) == (
        "decode: at least 100 ms (memory), measured 250 ms; prefill: at least 500 ms (compute)."
    )


def test_the_roofline_is_drawn_by_the_step_time_that_it_is_given():
    picture = plots.roofline_figure(MACHINE, [PREFILL], lambda *_: (2.0, "compute"))
    assert repr(picture) == "prefill: at least 2000 ms (compute)."


def test_a_filled_mark_is_drawn_for_what_was_measured_only():
    (axes,) = PICTURES["roofline"]().axes
    on_axes = [line for line in axes.lines if len(line.get_xdata()) == 1]
    filled = [line for line in on_axes if line.get_markerfacecolor() != "none"]
    assert [line.get_ydata()[0] for line in filled] == [4.0]  # 1 GFLOP in 0.25 s
    assert len(on_axes) == 3


def test_the_ladder_says_every_speed_and_its_kind_in_one_line():
    assert repr(PICTURES["ladder"]()) == (
        "rung 1: 8.67 tokens/s (measured); a roof: 1,234 tokens/s (modelled)."
    )
