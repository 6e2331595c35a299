"""The figures and the sliders of notebook 10 show the numbers that they are given."""

import math

from labkit.measure.experiments.costs import Offered
from labkit.measure.experiments.costs_scaling import Moment, Scaled
from labkit.measure.experiments.costs_simulated import Pooled, Priced
from labkit.workbook.figures.costs import cost_figure, knee_figure, pools_figure, scaling_figure
from labkit.workbook.widgets.costs import CostExplorer


def offered(rate, goodput, throughput):
    return Offered(rate, goodput, throughput, goodput / throughput, 0.1, 0.2, 0.05, 4.0)


def test_throughput_and_goodput_are_told_over_the_load():
    points = [offered(8, 1.0, 6.0), offered(2, 2.0, 2.0), offered(4, 3.5, 4.0)]
    picture = knee_figure(points, capacity=4.5)
    assert "highest at 4.0 requests a second: 3.5" in picture.story
    assert "At 8.0 a second, 6.0 a second are answered, and 1.0" in picture.story
    lines = {line.get_label(): list(line.get_ydata()) for line in picture.axes[0].lines}
    assert lines["answered"] == [2.0, 4.0, 6.0]
    assert lines["answered within the SLO"] == [2.0, 3.5, 1.0]


def priced(rate, budget, speed, good_cost):
    return Priced(rate, budget, speed, 1.0, 0.5, 100 / speed, good_cost)


def test_both_costs_are_drawn_and_an_infinite_one_is_left_out():
    by_load = [priced(4, 512, 100, 1.0), priced(8, 512, 200, 0.5), priced(16, 512, 210, math.inf)]
    by_budget = [priced(8, 128, 100, 9.0), priced(8, 512, 200, 0.5)]
    picture = cost_figure(by_load, by_budget)
    assert "cheapest at 8 requests a second, 0.50 dollars" in picture.story
    assert "at 16, where a good million costs inf" in picture.story
    assert "a budget of 512 is the cheapest" in picture.story
    good = list(picture.axes[0].lines[1].get_ydata())
    assert good[:2] == [1.0, 0.5] and math.isnan(good[2])
    assert picture.png().startswith(b"\x89PNG")
    assert picture.get_size_inches()[0] <= 6.5  # legible on a telephone


def test_a_broken_promise_is_hollow():
    runs = [Pooled("walled", {"chat": 0.1, "batch": 1.0}, {"chat": False, "batch": True}, (), 2.0)]
    picture = pools_figure(runs)
    assert picture.story == (
        "walled: chat 10%, batch 100%, 2.00 dollars for a million good tokens."
    )
    axes = picture.axes[0]
    assert {text.get_text() for text in axes.texts} == {"2.00", "$ per million\ngood tokens"}
    chat = axes.lines[0]
    assert chat.get_markerfacecolor() == "none" and list(chat.get_xdata()) == [0.1]


def test_replicas_are_shown_as_they_are_paid_for():
    moments = [Moment(0.0, 1, 0, 0, 3, 1), Moment(5.0, 1, 2, 0, 40, 3), Moment(10.0, 3, 0, 1, 9, 2)]
    picture = scaling_figure(Scaled(moments, attainment=0.75, cost=2.0))
    assert "At most 40 requests are under way, at 5 s" in picture.story
    assert "at most 4 replicas paid for; 75% of the requests" in picture.story
    assert [text.get_text() for text in picture.legends[0].get_texts()] == [
        "serves", "is being started", "ends what it has", "wanted",
    ]  # fmt: skip


def test_each_slider_changes_the_bill_and_the_words_say_so():
    explorer = CostExplorer()
    before = explorer.point
    assert "36 requests a second, 1024 tokens in a step" in explorer.words.value
    explorer.inputs["rate"].value = 64
    assert explorer.point.good_cost > 4 * before.good_cost
    assert "64 requests a second" in explorer.image.alt
    explorer.inputs["ttft"].value = explorer.inputs["ttft"].max
    assert explorer.point.attainment > 0.12
    assert repr(explorer).replace("\n", " ").endswith("needs a running kernel]")
