"""The engine's loop behind messages: who is accepted, what is told of a step. On `tiny`."""

import pytest

from labkit.library import Engine
from labkit.model import loading
from labkit.model.sampling_params import SamplingParams
from labkit.serving.engine_loop import EngineLoop, run
from labkit.serving.messages import Abort, Aborted, Accepted, Add, Look, Refused, Step, Stop

GREEDY = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)


@pytest.fixture(scope="module")
def tiny():
    return loading.load_decoder("tiny", with_tokenizer=False)


@pytest.fixture
def loop(tiny):
    engine = Engine(tiny, "preemptive", max_num_seqs=2, num_blocks=16, preemption="recompute")
    return EngineLoop(engine, max_queued_requests=2)


def add(loop, name, params=GREEDY, **more):
    return loop.handle(Add(name, [65, 66, 67], params, 0.0, **more))


def finish(loop):
    steps = []
    while loop.has_work:
        steps.append(loop.step())
    return steps


def test_what_fits_is_accepted_and_the_rest_is_told_that_it_is_busy(loop):
    """Two run, two wait: a burst is counted as if the free slots were taken already."""
    assert [type(add(loop, f"r{i}")) for i in range(4)] == [Accepted] * 4
    refused = add(loop, "r4")
    assert isinstance(refused, Refused) and refused.busy
    assert "2" in refused.reason and "--max-queued-requests" in refused.reason
    finish(loop)
    assert isinstance(add(loop, "r5"), Accepted)


def test_arrivals_with_steps_between_them_meet_the_same_limit(loop):
    answers = []
    for i in range(6):
        answers.append(type(add(loop, f"r{i}")))
        loop.step()
    assert answers[:4] == [Accepted] * 4 and Refused in answers[4:]


def test_all_answers_of_a_prompt_count(loop):
    assert add(loop, "r", SamplingParams(n=5, max_tokens=2)).busy
    assert isinstance(add(loop, "r", SamplingParams(n=4, max_tokens=2)), Accepted)


def test_nobody_is_locked_out_after_the_line_was_cancelled(tiny):
    engine = Engine(tiny, "preemptive", max_num_seqs=1, num_blocks=16, preemption="recompute")
    loop = EngineLoop(engine, max_queued_requests=1)
    add(loop, "a"), add(loop, "b")
    loop.step()
    loop.handle(Abort(["a", "b"]))
    assert not loop.has_work
    assert isinstance(add(loop, "c"), Accepted)


def test_a_bad_request_is_refused_for_good(loop):
    refused = loop.handle(Add("r", [65, 99999], GREEDY, 0.0))
    assert not refused.busy and "99999" in refused.reason
    assert not loop.open and not loop.has_work


def test_a_step_tells_of_tokens_starts_and_what_is_held(loop):
    add(loop, "a"), add(loop, "b"), add(loop, "c")
    first = loop.step()
    assert {start.request_id for start in first.started} == {"a", "b"}
    assert {token.request_id for token in first.tokens} == {"a", "b"}
    assert (first.running, first.waiting, first.num_used_blocks) == (2, 1, 2)
    steps = finish(loop)
    assert [s.request_id for step in steps for s in step.started] == ["c"]
    last = steps[-1]
    assert (last.running, last.waiting, last.num_used_blocks) == (0, 0, 0)
    reasons = [t.finish_reason for step in [first, *steps] for t in step.tokens if t.finish_reason]
    assert reasons == ["length"] * 3


def test_a_preemption_is_told_once(tiny):
    engine = Engine(tiny, "preemptive", max_num_seqs=1, num_blocks=16, preemption="recompute")
    loop = EngineLoop(engine)
    add(loop, "batch", priority=5)
    loop.step()
    add(loop, "chat", priority=-1)
    steps = finish(loop)
    assert [name for step in steps for name in step.preempted] == ["batch"]
    assert loop.preemptions == {} and loop.open == {}


def test_an_abort_says_what_was_open(loop):
    add(loop, "a"), add(loop, "b")
    assert loop.handle(Abort(["a", "nobody"], 7)) == Aborted(7, ["a"])
    assert loop.handle(Abort(["a"], 8)) == Aborted(8, [])


def test_a_look_shows_states_and_blocks(loop):
    for name in "abc":
        add(loop, name)
    loop.step()
    sight = loop.handle(Look(3))
    held = {one.request_id: one for one in sight.requests}
    assert sight.call == 3 and sight.num_used_blocks == 2
    assert [held[name].state for name in "abc"] == ["running", "running", "waiting"]
    assert [len(held[name].block_ids) for name in "abc"] == [1, 1, 0]


def test_one_that_ends_in_line_has_not_started(loop):
    add(loop, "a"), add(loop, "b"), add(loop, "late", deadline=0.0)
    steps = finish(loop)
    ends = {t.request_id: t.finish_reason for step in steps for t in step.tokens}
    assert ends["late"] == "deadline"
    assert "late" not in [start.request_id for step in steps for start in step.started]


def test_the_loop_answers_in_order_and_stops(loop):
    line = [Add("a", [65], GREEDY, 0.0), Look(1), Stop()]
    said = []

    def receive(wait):
        if wait or len(said) < 2:
            return line.pop(0)
        return line.pop(0) if not loop.has_work else None

    run(loop, receive, said.append)
    kinds = [type(message) for message in said]
    assert kinds[0] is Accepted and Step in kinds and not loop.has_work
