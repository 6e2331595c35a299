"""The figure of a schedule: its bars and its words say what the steps do."""

import pytest

from labkit.engine.blocks import BlockPool
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.measure.schedule import Part, Schedule, Step, play
from labkit.workbook.figures.schedule import Bar, rows_of, schedule_figure
from labkit.workbook.figures.schedule_words import named, story_of, words_of

STEPS = [
    Step(0, 1, (Part("a", "prefill", 0, 6),), blocks={"a": (0, 1)}, num_blocks=3),
    Step(1, 2, (Part("a", "prefill", 6, 2),), ("b",), blocks={"a": (0, 1)}, num_blocks=3),
    Step(2, 3, (Part("a", "decode", 8, 1), Part("b", "prefill", 0, 4)), num_blocks=3,
         blocks={"a": (0, 1), "b": (2,)}),
    Step(3, 4, (Part("a", "decode", 9, 1),), ("b",), preempted=("b",), finished=("a",),
         blocks={"a": (0, 1, 2)}, num_blocks=3, swapped=(1, 0)),
    Step(4, 6, (Part("b", "decode", 4, 1),), resumed=("b",), finished=("b",),
         blocks={"b": (0,)}, num_blocks=3, swapped=(0, 1)),
]  # fmt: skip
SCHEDULE = Schedule(STEPS, {"a": 0.0, "b": 0.5}, reasons={"a": "stop", "b": "length"}, budget=6)


def test_the_bars_of_a_request_say_what_it_did_and_waited_for():
    a, b = rows_of(SCHEDULE)
    assert a.bars == [
        Bar("prefill", 0, 1, 6),
        Bar("prefill", 1, 2, 2),
        Bar("decode", 2, 4, 2),
    ]
    assert b.bars == [
        Bar("waiting", 0.5, 2),
        Bar("prefill", 2, 3, 4),
        Bar("preempted", 3, 4),
        Bar("decode", 4, 6, 1),
    ]
    assert (a.end, b.end) == (4, 6)


def test_until_leaves_out_the_steps_after_it():
    a, b = rows_of(SCHEDULE, until=2)
    assert a.bars[-1] == Bar("prefill", 1, 2, 2) and b.bars == [Bar("waiting", 0.5, 2)]
    assert a.end is None
    assert schedule_figure(SCHEDULE, "t", until=2).story.startswith("2 requests in 2 steps and 2 s")


def test_on_a_real_clock_steps_in_a_row_are_one_bar():
    steps = [Step(i, i + 0.9, (Part("a", "decode", i, 1),)) for i in range(3)]
    [row] = rows_of(Schedule(steps, {"a": 0.0}))
    assert row.bars == [Bar("decode", 0, 2.9, 3)]


@pytest.mark.parametrize(
    "index, said",
    [
        (0, "Step 1 of 5, 0 to 1 s: 6 tokens of at most 6. a arrived. "
            "Prompt of a (tokens 0 to 5). 2 of 3 blocks in use."),
        (1, "b arrived. Prompt of a (tokens 6 to 7). In line: b."),
        (2, "Prompt of b (tokens 0 to 3). a generates. 3 of 3 blocks in use."),
        (3, "b loses its place and blocks (preempted; 1 block copied to the host). "
            "In line: b. a has ended (stop)."),
        (4, "b resumes, with 1 block copied from the host. b has ended (length)."),
    ],
)  # fmt: skip
def test_words_say_what_happened_in_a_step(index, said):
    assert said in words_of(SCHEDULE, index)


def test_the_story_counts():
    assert story_of(SCHEDULE, 5) == (
        "2 requests in 5 steps and 6 s: 12 tokens in prompts and chunks, 3 in decodes, "
        "1 preemption; at most 3 of 3 blocks in use."
    )


def test_many_names_are_shortened():
    assert named([]) == "" and named("ab") == "a and b"
    assert named("abcdefgh", most=3) == "a, b, c and 5 others"


def test_trouble_is_told_with_the_last_step_and_in_the_story():
    class Lazy(Scheduler):
        def _admit(self, plan, before=None):
            pass

    schedule = play(Lazy(BlockPool(8, 4), 8), [Request("a", [1] * 3)])
    assert schedule.trouble in words_of(schedule, len(schedule.steps) - 1)
    assert schedule.trouble in schedule_figure(schedule, "t").story
    assert schedule.trouble not in words_of(schedule, 0)


def test_a_schedule_without_a_step_is_a_picture_too():
    empty = Schedule([], {"a": 0.0}, trouble="stopped after step 0: plan raised KeyError")
    picture = schedule_figure(empty, "t")
    assert "no step" in picture.story and "KeyError" in picture.story
    assert picture._repr_png_()[0].startswith(b"\x89PNG")


def test_a_picture_shows_itself_also_with_more_requests_than_names_fit():
    requests = [Request(f"r{i}", [1] * 5, max_tokens=3, arrival=i / 4) for i in range(60)]
    schedule = play(Scheduler(BlockPool(64, 4), 16), requests)
    png, size = schedule_figure(schedule, "Sixty")._repr_png_()
    assert png.startswith(b"\x89PNG") and size["width"] == 900
