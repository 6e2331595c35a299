"""The sixth rung on a real decoder: a preempted request gives the tokens that it would have."""

import pytest

from labkit import rungs
from labkit.engine.policies import Fair
from labkit.engine.request import Request
from labkit.model import loading
from labkit.model.checkpoint import ModelError
from labkit.model.sampling_params import SamplingParams

PROMPT = [5, 9, 2, 5, 9, 2, 7, 7, 1, 30, 31, 32]
SAMPLED = SamplingParams(temperature=1.0, max_tokens=12, ignore_eos=True, seed=3)


@pytest.fixture(scope="module")
def tiny():
    return loading.load_decoder("tiny")


def engine_of(tiny, **options):
    options = {"num_blocks": 64, "block_size": 4, "max_num_seqs": 1} | options
    return rungs.make("preemptive", tiny, **options)


def slow_request(sampled: bool) -> Request:
    fields = {"sampling": SAMPLED} if sampled else {"max_tokens": 12, "ignore_eos": True}
    return Request("slow", PROMPT, priority=5, **fields)


def finish(engine) -> None:
    for _ in range(200):
        if not engine.has_unfinished():
            return
        engine.step()
    pytest.fail("unfinished after 200 steps")


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "seeded"])
@pytest.mark.parametrize("prefix_caching", [False, True])
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
@pytest.mark.parametrize("when", [1, 4, 9])  # steps before it is preempted
def test_preempted_and_resumed_it_gives_the_same_tokens(
    tiny, preemption, prefix_caching, sampled, when
):
    alone = slow_request(sampled)
    undisturbed = engine_of(tiny, preemption="recompute", prefix_caching=prefix_caching)
    undisturbed.add(alone)
    finish(undisturbed)

    engine = engine_of(tiny, preemption=preemption, prefix_caching=prefix_caching)
    slow = slow_request(sampled)
    engine.add(slow)
    for _ in range(when):
        engine.step()
    for i in range(3):  # they write to the blocks that it had
        urgent = Request(f"u{i}", [100 + i] * 40, max_tokens=3, ignore_eos=True, priority=i - 3)
        engine.add(urgent)
        engine.step()
    finish(engine)
    assert slow.output_token_ids == alone.output_token_ids and len(alone.output_token_ids) == 12
    assert slow.num_preemptions >= 1
    assert slow.num_swaps == (slow.num_preemptions if preemption == "swap" else 0)
    assert engine.scheduler.pool.num_used == 0


def test_by_the_estimate_it_is_one_or_the_other_and_the_tokens_stay(tiny):
    engine = engine_of(tiny)  # auto
    slow = slow_request(False)
    engine.add(slow)
    for _ in range(5):
        engine.step()
    engine.add(Request("urgent", [1, 2], max_tokens=1, priority=0))
    finish(engine)
    assert slow.num_preemptions == 1 and slow.num_swaps in (0, 1)
    assert engine.scheduler.preemption.seconds_per_token > 0


def test_a_policy_may_be_given_by_name_or_made(tiny):
    assert type(engine_of(tiny, policy="fair").scheduler.policy).__name__ == "Fair"
    own = Fair({"a": 2})
    assert engine_of(tiny, policy=own).scheduler.policy is own


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "best"}, "policy 'best' is not known"),
        ({"policy": 3}, "policy is 3"),
        ({"preemption": "drop"}, "preemption 'drop' is not known"),
        ({"preemption": "recompute", "swap_memory": "1MB"}, "of no use with preemption"),
        ({"swap_memory": 5}, "less than one block"),
        ({"itl_target_ms": -1}, "itl_target_ms is -1"),
        ({"itl_target_ms": True}, "itl_target_ms is True"),
    ],
)
def test_bad_options_are_refused(tiny, options, message):
    with pytest.raises((ValueError, ModelError), match=message):
        engine_of(tiny, **options)


@pytest.mark.parametrize("name", ["policy", "preemption", "swap_memory"])
def test_the_other_rungs_have_none_of_it(tiny, name):
    with pytest.raises(ValueError, match=f"has no {name}; it belongs to preemptive"):
        rungs.make("continuous", tiny, **{name: "x"})


@pytest.mark.parametrize("when", [4, 5], ids=["swapped out", "swapped in"])
def test_an_interrupted_step_loses_no_block_and_gives_no_wrong_token(tiny, monkeypatch, when):
    """Ctrl-C in a notebook: what the step planned is not done."""
    alone = slow_request(True)
    undisturbed = engine_of(tiny, preemption="recompute", prefix_caching=False)
    undisturbed.add(alone)
    finish(undisturbed)
    engine = engine_of(tiny, preemption="swap", prefix_caching=False)
    slow, copy, steps = slow_request(True), engine.runner.copy, []

    def interrupted(plan):
        steps.append(plan)
        if len(steps) == when + 1:
            assert plan.swap_out or plan.swap_in
            raise KeyboardInterrupt
        copy(plan)

    monkeypatch.setattr(engine.runner, "copy", interrupted)
    engine.add(slow)
    for _ in range(4):
        engine.step()
    engine.add(Request("urgent", [1, 2], max_tokens=1, priority=0))
    with pytest.raises(KeyboardInterrupt):
        for _ in range(3):
            engine.step()
    finish(engine)
    assert slow.output_token_ids == alone.output_token_ids[: len(slow.output_token_ids)]
    assert slow.finish_reason == ("length" if when == 4 else "error")
    assert engine.scheduler.books.host.num_used == engine.scheduler.pool.num_used == 0
