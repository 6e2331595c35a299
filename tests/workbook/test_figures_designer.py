"""A designed workload in the simulator: what a design says, and what is told to be saturated."""

from dataclasses import replace

import pytest

from labkit.workbook.figures.designer import designer_figure, saturated, story_of
from labkit.workbook.widgets.design import Design, arrivals_of, most_blocks, simulate

QUIET = Design(rate=0.25, num_blocks=most_blocks())


def test_half_of_the_requests_are_urgent_chat_and_shorter():
    arrivals = arrivals_of(Design(), count=1000)
    chat = [a for a in arrivals if a.tenant == "chat"]
    batch = [a for a in arrivals if a.tenant == "batch"]
    assert 450 < len(chat) < 550 and {a.priority for a in chat} == {0}
    assert {a.priority for a in batch} == {1}
    assert sum(a.num_prompt_tokens for a in batch) / len(batch) == pytest.approx(800, rel=0.1)
    assert sum(a.num_prompt_tokens for a in chat) / len(chat) == pytest.approx(200, rel=0.1)
    assert arrivals[-1].time == pytest.approx(1000 / 4, rel=0.15)


def test_a_slider_changes_one_thing_and_a_run_is_the_same_every_time():
    slow, fast = arrivals_of(Design(rate=1)), arrivals_of(Design(rate=2))
    assert [a.num_prompt_tokens for a in slow] == [a.num_prompt_tokens for a in fast]
    assert slow[-1].time == pytest.approx(2 * fast[-1].time)
    assert story_of(simulate(Design(), 60)) == story_of(simulate(Design(), 60))


@pytest.mark.parametrize(
    "design, said",
    [
        (QUIET, "Nothing is saturated"),
        (Design(rate=6), "KV blocks are saturated"),
        (replace(QUIET, rate=1.5, max_num_batched_tokens=32), "token budget is saturated"),
        (replace(QUIET, rate=16, prompt_tokens=100, output_tokens=200), "slots are saturated"),
        (Design(rate=6), "More arrives than is served"),
    ],
)
def test_what_is_saturated_is_said(design, said):
    told = " ".join(saturated(simulate(design)))
    assert said in told
    assert (said == "Nothing is saturated") == ("Nothing" in told)


def test_priority_keeps_chat_within_its_slo_where_first_come_does_not():
    kept, lost = (simulate(Design(policy=policy)) for policy in ("priority", "fcfs"))
    assert kept.met("chat") == kept.count("chat") > 5 * lost.met("chat")


def test_every_request_is_counted_once_whatever_became_of_it():
    for design in (Design(policy="deadline"), Design(prompt_tokens=2000, num_blocks=200)):
        outcome = simulate(design)
        assert sum(outcome.count(name) for name in ("chat", "batch")) == 240
        assert outcome.met("chat") <= outcome.count("chat")
    assert outcome.num_failed > 0 and "can never fit" in story_of(outcome)


@pytest.mark.parametrize("design", [Design(), Design(chat_share=0), Design(chat_share=1)])
def test_an_outcome_is_a_picture_labelled_as_modelled(design):
    picture = designer_figure(simulate(design, 60))
    assert picture._repr_png_()[0].startswith(b"\x89PNG")
    assert picture.story.startswith("Modelled.") and "modelled" in picture.axes[0].get_title("left")


def test_a_policy_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="'lottery' is not known; accepted are fcfs"):
        Design(policy="lottery")
