"""The widgets: what they show without a kernel, and what they hand to the browser."""

import json

import ipywidgets
import pytest

from labkit.engine.blocks import BlockPool
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.measure.batching import BatchPoint
from labkit.measure.schedule import Schedule, play
from labkit.workbook import widgets
from labkit.workbook.figures.xray import XRay
from labkit.workbook.plots import Picture
from labkit.workbook.widgets import data, drawn
from labkit.workbook.widgets.design import Design
from labkit.workbook.widgets.designer import Designer

POINTS = [BatchPoint(b, 100 * b / (b + 4), 0.1, 0.0, 1 + b, 2**20) for b in (1, 2, 4, 8)]
STATES = [
    XRay(4, 6, {"a": (0, 1)}, {"a": 5}),
    XRay(4, 6, {"b": (0, 2), "a": (0, 1)}, {"a": 5, "b": 6}, {5, 1}, ("b", 9), "b reads on."),
]
LANES = {"streamed": [(0.5, "b"), (0.1, "a")], "not": [(0.6, "ab")]}


def schedule() -> Schedule:
    rivals = [Request(n, [1] * 12, max_tokens=12, arrival=t) for n, t in (("a", 0), ("b", 1.5))]
    return play(Scheduler(BlockPool(8, 4, False), 10), rivals)


SHOWS = {
    "timeline": lambda: widgets.timeline(schedule(), "title"),
    "block_xray": lambda: widgets.block_xray(STATES, "title"),
    "batch_explorer": lambda: widgets.batch_explorer(POINTS, "title", 5.0),
    "streaming_race": lambda: widgets.streaming_race(LANES, "title"),
    "workload_designer": widgets.workload_designer,
}


@pytest.fixture
def shown(monkeypatch) -> list:
    """What is displayed, in order."""
    found = []
    monkeypatch.setattr(drawn, "display", found.append)
    return found


@pytest.mark.parametrize("name", SHOWS)
def test_a_figure_and_its_story_come_first_then_the_widget_with_a_text(name, shown, capsys):
    assert SHOWS[name]() is None
    figure, widget = shown
    told = capsys.readouterr().out
    assert isinstance(figure, Picture) and told.split() == figure.story.split()
    assert repr(figure) == figure.story
    bundle = widget._repr_mimebundle_()
    bundle = bundle[0] if isinstance(bundle, tuple) else bundle  # with its metadata
    assert "application/vnd.jupyter.widget-view+json" in bundle
    text = bundle["text/plain"]
    assert text.replace("\n", " ").endswith("needs a running kernel]") and len(text) < 200
    assert max(map(len, [*told.splitlines(), *text.splitlines()])) <= 88  # as wide as a page is


def test_nothing_to_show_is_said(shown, capsys):
    with pytest.raises(ValueError, match="at least one XRay"):
        widgets.block_xray([], "t")
    with pytest.raises(ValueError, match="at least one BatchPoint"):
        widgets.batch_explorer([], "t")
    widgets.timeline(Schedule([], {}, trouble="stopped after step 0: x"), "t")
    widgets.block_xray(STATES[:1], "t")
    assert "stopped after step 0" in capsys.readouterr().out
    assert [type(one) for one in shown] == [Picture, Picture]  # there is nothing to scrub


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_refused_in_words(number, shown):
    point = BatchPoint(4, number, 0.1, 0.1, 1.0, 100)
    with pytest.raises(ValueError, match="tokens_per_s of batch 4 is (nan|inf)"):
        widgets.batch_explorer([point], "t")
    with pytest.raises(ValueError, match="a time of lane 'a' is (nan|inf)"):
        widgets.streaming_race({"a": [(0.1, "x"), (number, "y")]}, "t")
    assert not shown


def test_names_that_the_font_has_no_letters_for_cause_no_warning(shown, recwarn):
    widgets.streaming_race({"한국어": [(0.1, "안녕")], "<script>": [(0.2, "😀")]}, "🔥")
    assert shown[0]._repr_png_()[0].startswith(b"\x89PNG")
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_what_is_handed_to_the_browser_is_json():
    for made in (
        data.timeline_data(schedule(), "t"),
        data.xray_data(STATES, "t"),
        data.race_data(LANES, "t"),
        data.batch_data(POINTS, "t", None),
    ):
        assert json.loads(json.dumps(made, allow_nan=False))["title"] == "t"


def test_each_step_of_a_timeline_says_what_every_request_does():
    made = data.timeline_data(schedule(), "t")
    assert [row["name"] for row in made["rows"]] == ["a", "b"]
    states = [step["states"] for step in made["steps"]]
    assert states[0] == ["prefill 10, 3 blocks", ""]
    assert states[2] == ["decode, 4 blocks", "prefill 9, 3 blocks"]
    assert ["decode, 5 blocks", "preempted"] in states
    assert states[-1] == ["ended", "decode, 6 blocks"]
    assert made["mostTokens"] == 10 and made["mostBlocks"] == 8
    assert all(step["prefill"] + step["decode"] <= 10 for step in made["steps"])


def test_a_very_long_timeline_shows_its_beginning_and_says_so(monkeypatch):
    monkeypatch.setattr(data, "MOST_STEPS", 3)
    made = data.timeline_data(schedule(), "t")
    assert len(made["steps"]) == 3 and "the first 3 of" in made["title"]
    assert made["last"] == made["steps"][-1]["end"]


def test_a_request_keeps_its_number_in_all_states_of_an_xray():
    made = data.xray_data(STATES, "t")
    first, second = made["states"]
    assert made["names"] == ["a", "b"]
    assert first["blocks"] == {0: [(0, 4)], 1: [(0, 1)]} and first["bad"] is None
    assert second["blocks"][0] == [(1, 4), (0, 4)] and second["cached"] == [5]
    assert second["bad"] == [1, 2] and second["hit"] is None
    assert second["words"].startswith("b reads on. 2 requests hold 3 of 6 blocks.")


def test_the_scripts_bring_all_they_use():
    for kind in (drawn.Timeline, drawn.BlockXRay, drawn.StreamingRace, drawn.BatchExplorer):
        script = str(kind._esm)
        assert script.count("export default { render };") == 1 and "function player(" in script
        assert "http" not in script.replace("http://www.w3.org/", "")  # no network


def test_a_move_of_a_slider_serves_the_design_anew():
    designer = Designer(Design(policy="priority"))
    image, words = designer.image.value, designer.words.value
    designer.inputs["policy"].value = "fcfs"
    assert designer.design == Design(policy="fcfs")
    assert designer.image.value != image and designer.words.value != words
    assert designer.picture.story in designer.words.value
    assert all(field.description for field in designer.inputs.values())
    assert isinstance(designer, ipywidgets.VBox)


def test_a_designer_begins_with_the_policy_asked_for(shown):
    widgets.workload_designer("fair")
    figure, designer = shown
    assert designer.design.policy == "fair"
    assert "fair (modelled)" in figure.axes[0].get_title("left")
    assert designer.picture.story == figure.story
    with pytest.raises(ValueError, match="'lottery' is not known"):
        widgets.workload_designer("lottery")
