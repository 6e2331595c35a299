"""The experiments of notebook 08, on `tiny`: the schedule is the same on every machine."""

import pytest

from labkit.engine.books import Books
from labkit.engine.policies import FCFS, Priority
from labkit.engine.scheduler import Scheduler
from labkit.measure.experiments import priorities
from labkit.measure.experiments.priorities import WithoutPreemption, make_engine, serve
from labkit.measure.experiments.priorities_costs import on_cards, ways_back
from labkit.measure.experiments.priorities_simulated import arrivals, simulate
from labkit.model import load_decoder


class Shorter:
    """A model of bytes, with prompts about as long as those of a model of words."""

    def __init__(self, loaded):
        self.loaded = loaded

    def __getattr__(self, name):
        return getattr(self.loaded, name)

    def encode_chat(self, text):
        return self.loaded.encode_chat(text)[::4]


@pytest.fixture(scope="module")
def tiny():
    return Shorter(load_decoder("tiny"))


def run(loaded, policy, asked, **options):
    return serve(make_engine(loaded, policy, **options), asked(loaded))


def test_with_one_batch_request_priority_changes_nothing(tiny):
    def light(loaded):
        return priorities.three_classes(loaded, 1)

    first, other = (run(tiny, policy(), light, max_num_seqs=3) for policy in (FCFS, Priority))
    assert first.token_steps == other.token_steps
    assert first.num_preemptions == other.num_preemptions == 0


def test_with_six_it_saves_the_chat_and_the_batch_job_pays(tiny):
    def heavy(loaded):
        return priorities.three_classes(loaded, 6)

    first, urgent = (run(tiny, policy(), heavy, max_num_seqs=3) for policy in (FCFS, Priority))
    assert set(urgent.steps_to_first_token("chat")) == {1}
    assert min(first.steps_to_first_token("chat")) > 5
    assert len(urgent.schedule.steps) > len(first.schedule.steps)
    assert urgent.num_preemptions > 0 == len(priorities.differing(first, urgent))
    assert urgent.num_computed > first.num_computed
    assert urgent.on_time(first.seconds) == 6 and first.on_time(0.0) == 0
    assert urgent.goodput(first.seconds) == pytest.approx(14 / urgent.seconds)


def test_memory_preempts_and_swapping_computes_nothing_again(tiny):
    asked, few = priorities.little_memory, {"num_blocks": 8}
    plenty = run(tiny, Priority(), asked, num_blocks=200)
    again = run(tiny, Priority(), asked, scheduler=Scheduler, **few)
    swapped = run(
        tiny, Priority(), asked, scheduler=Scheduler, books=Books, preemption="swap",
        swap_memory="8MB", **few,
    )  # fmt: skip
    assert plenty.num_preemptions == 0 < again.num_preemptions
    assert again.num_swaps == 0 < swapped.num_swaps == swapped.num_preemptions
    assert again.num_computed > plenty.num_computed == swapped.num_computed
    assert swapped.num_blocks_copied > 0 == again.num_blocks_copied
    assert not priorities.differing(plenty, again) and not priorities.differing(plenty, swapped)


def test_priority_alone_waits_behind_a_long_one(tiny):
    asked = priorities.behind_a_long_one
    waits = run(tiny, WithoutPreemption(), asked, max_num_seqs=1)
    takes = run(tiny, Priority(), asked, max_num_seqs=1)
    beside = run(tiny, FCFS(), asked, max_num_seqs=2)
    assert waits.steps_to_first_token("chat") > [10]
    assert takes.steps_to_first_token("chat") == beside.steps_to_first_token("chat") == [1]


def test_both_ways_back_are_measured(tiny):
    engine = make_engine(tiny, Priority(), num_blocks=64, preemption="swap", swap_memory="8MB")
    found = ways_back(engine, [16, 64])
    assert [one.num_tokens for one in found] == [16, 64]
    assert all(one.recompute_s > 0 < one.swap_s for one in found)
    assert not engine.has_unfinished()


def test_on_a_card_bytes_and_flops_come_from_its_data_sheet():
    [h100] = on_cards(names=("H100",))
    assert h100.recompute_us == pytest.approx(2 * 8e9 / 989e12 * 1e6)
    assert h100.swap_us == pytest.approx(2 * 131072 / 64e9 * 1e6)


def test_simulated_load_decides_whether_priority_matters():
    assert [a.tenant for a in arrivals(5, 8)] == ["chat", "batch", "chat", "agent", "batch"]
    light, full = ([simulate(p, rate, 300) for p in ("fcfs", "priority")] for rate in (4, 60))
    assert light[0].chat_on_time == light[1].chat_on_time == 1
    assert full[1].chat_p99_s < full[0].chat_p99_s / 5
    assert full[1].batch_e2e_s > full[0].batch_e2e_s
