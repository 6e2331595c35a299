"""What the scheduler runs in each step, who waits, and how requests end."""

import subprocess
import sys

import pytest
from scheduling import EOS, FakeEngine, chain

from labkit.engine.blocks import hash_block
from labkit.engine.policies import FCFS
from labkit.engine.request import Request, State
from labkit.model.sampling_params import SamplingParams


class OldestGivesWay(FCFS):
    """Takes from the first admitted, so that a victim may be in the step already."""

    def victim(self, running):
        return next(iter(running))


def decoding(engine, *names, prompt=3, max_tokens=9):
    """Adds requests and steps until each of them generates."""
    requests = [engine.add(name, prompt, max_tokens) for name in names]
    step_until(engine, lambda: all(request.output_token_ids for request in requests))
    return requests


def step_until(engine, condition, most_steps=50):
    for _ in range(most_steps):
        if condition():
            return
        engine.step()
    pytest.fail(f"not so after {most_steps} steps")


# Budget and slots


def test_a_request_runs_from_its_prompt_to_its_last_token():
    engine = FakeEngine()
    request = engine.add("a", 5, max_tokens=3)
    assert engine.run() == [{"a": 5}, {"a": 1}, {"a": 1}]
    assert engine.tokens_of("a") == request.output_token_ids == [1000, 1001, 1002]
    assert [event.finish_reason for event in engine.events] == [None, None, "length"]
    assert [event.time for event in engine.events] == [1, 2, 3]
    assert engine.pool.num_used == 0


@pytest.mark.parametrize(
    ("budget", "chunks"),
    [(1, [1] * 7), (3, [3, 3, 1]), (16, [7])],
)
def test_a_prompt_is_computed_in_chunks_of_the_budget(budget, chunks):
    engine = FakeEngine(max_num_batched_tokens=budget)
    engine.add("a", 7, max_tokens=2)
    assert engine.run() == [{"a": size} for size in [*chunks, 1]]


def test_no_token_comes_before_the_whole_prompt_is_computed():
    engine = FakeEngine(max_num_batched_tokens=3)
    engine.add("a", 7)
    engine.step()
    engine.step()
    assert engine.events == []
    engine.step()
    assert engine.tokens_of("a") == [1000]


def test_running_requests_come_first_and_the_rest_of_the_budget_admits():
    engine = FakeEngine(max_num_batched_tokens=8)
    decoding(engine, "a")
    engine.add("b", 5)
    engine.add("c", 5)
    assert engine.step() == {"a": 1, "b": 5, "c": 2}
    assert engine.step() == {"a": 1, "b": 1, "c": 3}
    assert engine.step() == {"a": 1, "b": 1, "c": 1}


def test_requests_are_admitted_in_order_of_arrival():
    engine = FakeEngine(max_num_seqs=1)
    for name in "abc":
        engine.add(name, 2, max_tokens=1)
    assert engine.run() == [{"a": 2}, {"b": 2}, {"c": 2}]


def test_no_more_than_max_num_seqs_run_and_one_that_ends_makes_room():
    engine = FakeEngine(max_num_seqs=2)
    engine.add("a", 2, max_tokens=1)
    engine.add("b", 2, max_tokens=3)
    engine.add("c", 2, max_tokens=1)
    assert engine.run() == [{"a": 2, "b": 2}, {"b": 1, "c": 2}, {"b": 1}]


def test_a_long_prompt_never_stops_one_that_generates():
    """Case 28: the longest gap between two tokens is one step, of at most one budget."""
    engine = FakeEngine(num_blocks=100, max_num_batched_tokens=16)
    decoding(engine, "chat", max_tokens=40)
    engine.add("long", 16 * 16, max_tokens=1)
    steps = engine.run()
    assert steps[:18] == [{"chat": 1, "long": 15}] * 17 + [{"chat": 1, "long": 1}]
    assert engine.tokens_of("chat") == list(range(1000, 1040))


@pytest.mark.parametrize("name", ["max_num_batched_tokens", "max_num_seqs"])
def test_limits_that_allow_no_progress_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is 0; at least 1"):
        FakeEngine(**{name: 0})


def test_the_policy_that_is_given_is_the_one_that_is_used():
    """An empty policy has length 0, which is not the same as no policy."""
    policy = FCFS()
    assert FakeEngine(policy=policy).scheduler.policy is policy


# Ends


def test_a_stop_token_ends_a_request_and_is_an_event():
    engine = FakeEngine(next_token=lambda r: EOS if len(r.output_token_ids) == 2 else 7)
    engine.add("a", 3, max_tokens=9)
    engine.run()
    assert engine.tokens_of("a") == [7, 7, EOS]
    assert engine.ends() == {"a": "stop"}


def test_a_stop_token_among_the_first_min_tokens_does_not_end_a_request():
    engine = FakeEngine(next_token=lambda r: EOS)
    engine.add("a", 3, sampling=SamplingParams(max_tokens=9, min_tokens=2))
    engine.run()
    assert engine.tokens_of("a") == [EOS] * 3
    assert engine.ends() == {"a": "stop"}


def test_a_row_that_can_not_be_sampled_ends_its_request_alone():
    engine = FakeEngine(next_token=lambda r: "a logit is NaN" if r.request_id == "bad" else 7)
    engine.add("bad", 3)
    engine.add("good", 3)
    engine.run()
    assert engine.ends() == {"bad": "error", "good": "length"}
    [failure] = [event for event in engine.events if event.request_id == "bad"]
    assert (failure.token_id, failure.error) == (None, "a logit is NaN")
    assert engine.pool.num_used == 0


def test_an_id_in_use_is_refused_and_free_again_after_the_end():
    engine = FakeEngine()
    engine.add("a", 3)
    with pytest.raises(ValueError, match="'a' is already in line"):
        engine.add("a", 3)
    engine.run()
    engine.add("a", 3)
    engine.run()
    assert len(engine.tokens_of("a")) == 8


def test_a_step_with_nothing_to_do_is_empty():
    engine = FakeEngine()
    assert engine.step() == {}
    assert engine.events == []


# The prefix cache


def test_a_second_request_computes_only_what_the_first_has_not():
    engine = FakeEngine()
    engine.add("a", list(range(10)), max_tokens=1)
    engine.run()
    request = engine.add("b", [*range(8), 70, 71, 72], max_tokens=1)
    assert engine.run() == [{"b": 3}]
    assert request.num_cached_tokens == 8


def test_a_running_request_shares_its_full_blocks():
    engine = FakeEngine(num_blocks=5)
    decoding(engine, "a", prompt=9)
    engine.add("b", 9)
    assert engine.step() == {"a": 1, "b": 1}
    assert engine.pool.num_used == 4  # two shared, and one each


def test_a_prompt_of_whole_blocks_sent_twice_leaves_a_token_to_compute():
    """Case 26: without one there would be no logits, and no first token."""
    engine = FakeEngine()
    engine.add("a", 8, max_tokens=2)
    engine.run()
    request = engine.add("b", 8, max_tokens=2)
    assert engine.run() == [{"b": 4}, {"b": 1}]
    assert request.num_cached_tokens == 4
    assert engine.tokens_of("b") == [1000, 1001]


def test_a_prompt_of_one_block_of_one_token_can_be_sent_twice():
    engine = FakeEngine(block_size=1)
    for name in "ab":
        engine.add(name, 1, max_tokens=1)
        assert engine.run() == [{name: 1}]


def test_output_is_found_again_when_it_comes_back_in_a_prompt():
    engine = FakeEngine()
    request = engine.add("turn 1", 6, max_tokens=7)
    engine.run()
    engine.add("turn 2", [*request.token_ids, 5, 6, 7], max_tokens=1)
    assert engine.run() == [{"turn 2": 16 - 12}]  # the 13th token was never computed


def test_a_salt_separates():
    engine = FakeEngine()
    for name, salt in [("a", "alice"), ("b", "bob"), ("c", "")]:
        engine.add(name, 8, max_tokens=1, cache_salt=salt)
        assert engine.run() == [{name: 8}]
    engine.add("d", 8, max_tokens=1, cache_salt="bob")
    assert engine.run() == [{"d": 4}]


def test_tokens_that_only_look_alike_do_not_share():
    """Case 27: Python gives -1 and -2 one hash, and sums don't see the order."""
    engine = FakeEngine()
    for name, start in [("a", [-1, 3, 1, 2]), ("b", [-2, 3, 1, 2]), ("c", [3, -1, 2, 1])]:
        engine.add(name, [*start, 5], max_tokens=1)
        assert engine.run() == [{name: 5}]


def test_without_prefix_caching_everything_is_computed():
    engine = FakeEngine(prefix_caching=False)
    for name in "ab":
        engine.add(name, 9, max_tokens=1)
        assert engine.run() == [{name: 9}]


def test_two_equal_prompts_in_one_step_are_both_computed():
    """What is planned is not in the cache yet."""
    engine = FakeEngine()
    engine.add("a", 9, max_tokens=1)
    engine.add("b", 9, max_tokens=1)
    assert engine.run() == [{"a": 9, "b": 9}]


def test_free_blocks_that_are_shared_are_not_counted_as_room_too():
    """Two of the four free blocks hold the beginning; with three more there are not enough."""
    engine = FakeEngine(num_blocks=5)
    engine.add("a", 9, max_tokens=1)
    engine.run()
    decoding(engine, "other", prompt=[7, 7, 7])
    engine.add("b", 17, max_tokens=1)
    assert engine.step() == {"other": 1}
    assert engine.scheduler.policy.peek().request_id == "b"
    engine.run()


# Preemption by recompute


def test_the_last_admitted_gives_up_its_blocks_and_runs_again():
    engine = FakeEngine(num_blocks=4, prefix_caching=False)
    a, b = decoding(engine, "a", "b", prompt=7, max_tokens=6)
    assert engine.step() == {"a": 1, "b": 1}
    assert engine.step() == {"a": 1}  # the ninth token of a needs a third block
    assert engine.plan.preempted == [b]
    assert (b.state, b.num_preemptions, b.block_table) == (State.PREEMPTED, 1, [])
    engine.run()
    assert (a.num_preemptions, b.num_preemptions) == (0, 1)
    assert engine.tokens_of("a") == engine.tokens_of("b") == list(range(1000, 1006))


def test_a_preempted_request_computes_its_output_again_too():
    engine = FakeEngine(num_blocks=4, prefix_caching=False)
    decoding(engine, "a", "b", prompt=7, max_tokens=6)
    steps = engine.run()
    assert {"b": 9} in steps  # seven of the prompt and two of the output in one chunk


def test_with_a_prefix_cache_a_preempted_request_finds_what_is_left_of_its_blocks():
    engine = FakeEngine(num_blocks=5)
    engine.add("a", [1] * 11, max_tokens=3)
    engine.add("b", [2] * 8, max_tokens=6)
    steps = engine.run()
    assert engine.num_preemptions == 1
    assert {"b": 9} not in steps and {"b": 1 + 4} in steps


def test_a_preempted_request_comes_before_those_that_never_ran():
    engine = FakeEngine(num_blocks=4, prefix_caching=False)
    decoding(engine, "a", "b", prompt=7)
    engine.add("late", [5])
    engine.step()
    engine.step()
    assert list(engine.scheduler.policy.waiting) == ["b", "late"]


def test_blocks_taken_from_a_request_are_not_given_to_a_newcomer_in_the_same_step():
    engine = FakeEngine(num_blocks=4, prefix_caching=False)
    decoding(engine, "a", "b", prompt=7)
    engine.add("late", [5])
    engine.step()
    assert engine.step() == {"a": 1}


def test_two_preempted_requests_keep_their_order_of_arrival():
    engine = FakeEngine(num_blocks=5, prefix_caching=False)
    engine.add("a", 7, max_tokens=12)
    engine.add("b", 6, max_tokens=4)
    engine.add("c", 3, max_tokens=4)
    engine.run()
    assert engine.num_preemptions >= 2
    assert list(engine.ends()) == ["a", "b", "c"]


def test_the_rollback_of_a_victim_already_in_the_step():
    """Case 23: its tokens return to the budget, its blocks to the pool."""
    engine = FakeEngine(num_blocks=4, prefix_caching=False, policy=OldestGivesWay())
    engine.add("a", 5, max_tokens=8)
    engine.add("b", 7, max_tokens=8)
    engine.step()
    engine.step()
    assert engine.step() == {"b": 1}
    assert [request.request_id for request in engine.plan.preempted] == ["a"]
    assert engine.plan.budget == engine.scheduler.max_num_batched_tokens - 1
    assert engine.pool.num_used == 3  # all of them b's
    engine.run()
    assert engine.tokens_of("a") == engine.tokens_of("b") == list(range(1000, 1008))


def test_a_victim_rolled_back_leaves_its_tokens_to_those_after_it():
    engine = FakeEngine(
        num_blocks=4,
        block_size=8,
        prefix_caching=False,
        policy=OldestGivesWay(),
        max_num_batched_tokens=4,
    )
    engine.add("a", 1, max_tokens=20)
    engine.add("b", 2, max_tokens=20)
    engine.add("c", 16, max_tokens=1)
    schedules = [engine.step() for _ in range(8)]
    assert schedules[:2] == [{"a": 1, "b": 2, "c": 1}, {"a": 1, "b": 1, "c": 2}]
    assert schedules[7] == {"b": 1, "c": 3}  # b's ninth token needs the block of a


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_two_that_do_not_fit_together_do_not_take_turns(prefix_caching):
    """Each step of the first counts; the second is preempted at most once for each block of it."""
    engine = FakeEngine(num_blocks=4, prefix_caching=prefix_caching)
    engine.add("a", [1] * 4, max_tokens=12)
    engine.add("b", [2] * 4, max_tokens=12)
    engine.run(most_steps=2 * 12)
    assert engine.ends() == {"a": "length", "b": "length"}
    assert engine.num_preemptions == 1


def test_many_that_do_not_fit_together_all_finish():
    engine = FakeEngine(num_blocks=4, prefix_caching=False)
    for name in "abcdef":
        engine.add(name, 4, max_tokens=12)
    engine.run(most_steps=6 * 12)
    assert set(engine.ends().values()) == {"length"}
    assert engine.num_preemptions <= 6


# What never fits


def test_a_request_that_can_never_fit_is_refused_with_the_numbers():
    """Case 21, and the one after it runs."""
    engine = FakeEngine(num_blocks=4)
    message = "'big' can never fit: 17 prompt tokens and at least 1 more need 5 KV blocks of 4"
    with pytest.raises(ValueError, match=f"{message} tokens, the pool has 4"):
        engine.add("big", 17, max_tokens=1)
    assert not engine.scheduler.has_unfinished()
    engine.add("small", 4, max_tokens=1)
    assert engine.run() == [{"small": 4}]


def test_what_is_certain_to_be_generated_counts_too():
    engine = FakeEngine(num_blocks=4)
    with pytest.raises(ValueError, match="12 prompt tokens and at least 6 more need 5 KV blocks"):
        engine.add("a", 12, max_tokens=6, ignore_eos=True)
    with pytest.raises(ValueError, match="12 prompt tokens and at least 6 more need 5 KV blocks"):
        engine.add("a", 12, sampling=SamplingParams(max_tokens=9, min_tokens=6))


@pytest.mark.parametrize("ends", [{"stop": "."}, {"stop_token_ids": [5]}])
def test_what_may_end_early_is_admitted(ends):
    """It may turn out to fit: a stop string or a stop token can come before the blocks run out."""
    engine = FakeEngine(num_blocks=4, next_token=lambda r: 5)
    engine.add("a", 12, sampling=SamplingParams(max_tokens=20, ignore_eos=True, **ends))
    engine.run(most_steps=7)
    assert engine.ends() == {"a": "stop" if "stop_token_ids" in ends else "error"}


@pytest.mark.parametrize(("prompt", "max_tokens"), [(16, 1), (12, 5), (1, 16)])
def test_what_fits_to_the_last_slot_runs_to_its_end(prompt, max_tokens):
    """The last output token is never fed back, so it needs no slot."""
    engine = FakeEngine(num_blocks=4)
    engine.add("a", prompt, max_tokens=max_tokens, ignore_eos=True)
    engine.run()
    assert engine.ends() == {"a": "length"}


def test_a_request_that_outgrows_the_whole_pool_fails_by_itself_with_the_numbers():
    """Case 22: nobody is left to preempt, nothing loops, and others go on."""
    engine = FakeEngine(num_blocks=4)
    request = engine.add("a", 14, max_tokens=100)
    engine.add("b", [7] * 6, max_tokens=3)
    engine.run(most_steps=8)
    assert engine.ends() == {"a": "error", "b": "length"}
    assert engine.tokens_of("a") == [1000, 1001, 1002]  # those stay valid
    assert "after 3 output tokens: 17 tokens need 5 blocks of 4, the pool has 4" in request.error
    assert [event.error for event in engine.events if event.error] == [request.error]
    assert engine.pool.num_used == 0


def test_a_request_too_big_for_the_pool_takes_no_blocks_from_others_before_it_fails():
    engine = FakeEngine(num_blocks=4, policy=OldestGivesWay())
    engine.add("a", 14, max_tokens=100)
    engine.run(most_steps=8)
    assert engine.num_preemptions == 0


def test_a_request_that_outgrows_the_pool_after_a_preemption_fails_too():
    engine = FakeEngine(num_blocks=5, prefix_caching=False)
    engine.add("a", 3, max_tokens=30)
    b = engine.add("b", [7] * 16, max_tokens=30)
    engine.run(most_steps=60)
    assert engine.ends() == {"a": "error", "b": "error"}
    assert b.num_preemptions >= 1
    assert engine.pool.num_used == 0


@pytest.mark.parametrize(("prompt", "fits"), [(19, True), (20, True), (21, False)])
def test_prompt_and_max_tokens_fit_in_max_model_len_or_are_refused(prompt, fits):
    """Case 7: the prompt is one below, at and one above what leaves room for four tokens."""
    engine = FakeEngine(max_model_len=24)
    if fits:
        engine.add("a", prompt, max_tokens=4)
    else:
        with pytest.raises(ValueError, match="21 prompt tokens and max_tokens 4 make 25, .* 24;"):
            engine.add("a", prompt, max_tokens=4)
    engine.add("next", 3)
    engine.run()
    assert engine.ends() == ({"a": "length"} if fits else {}) | {"next": "length"}


def test_a_refused_request_may_come_again_under_the_same_id():
    engine = FakeEngine(max_model_len=24)
    with pytest.raises(ValueError):
        engine.add("a", 24)
    engine.add("a", 20)
    engine.run()
    assert engine.ends() == {"a": "length"}


# Abort


def test_abort_before_admission():
    engine = FakeEngine(max_num_seqs=1)
    decoding(engine, "a")
    waiting = engine.add("b", 3)
    assert engine.scheduler.abort("b") is True
    assert (waiting.state, waiting.finish_reason) == (State.FINISHED, "abort")
    engine.run()
    assert engine.ends() == {"a": "length"}


def test_abort_while_the_prompt_is_computed():
    engine = FakeEngine(max_num_batched_tokens=3)
    engine.add("a", 8)
    engine.step()
    assert engine.pool.num_used == 1
    assert engine.scheduler.abort("a") is True
    assert engine.pool.num_used == 0
    assert engine.run() == []


def test_abort_while_it_generates_returns_its_blocks_and_no_others():
    engine = FakeEngine()
    decoding(engine, "a")
    before = engine.pool.num_used
    decoding(engine, "b", prompt=[7] * 9)
    assert engine.pool.num_used > before
    engine.scheduler.abort("b")
    assert engine.pool.num_used == before
    assert engine.step() == {"a": 1}


def test_abort_after_preemption():
    engine = FakeEngine(num_blocks=4)
    _, b = decoding(engine, "a", "b", prompt=7)
    step_until(engine, lambda: b.state is State.PREEMPTED)
    assert engine.scheduler.abort("b") is True
    engine.run()
    assert engine.ends() == {"a": "length"}


def test_abort_while_its_step_is_computed_gives_no_token():
    engine = FakeEngine()
    decoding(engine, "a", "b")
    seen = len(engine.tokens_of("a"))
    engine.step(meanwhile=lambda: engine.scheduler.abort("a"))
    assert len(engine.tokens_of("a")) == seen
    assert engine.step() == {"b": 1}


def test_an_id_given_again_while_the_step_of_its_aborted_owner_is_computed():
    engine = FakeEngine()
    decoding(engine, "a")
    seen = len(engine.tokens_of("a"))

    def replace():
        engine.scheduler.abort("a")
        engine.add("a", [7, 7], max_tokens=1)

    engine.step(meanwhile=replace)
    assert len(engine.tokens_of("a")) == seen
    assert engine.run() == [{"a": 2}]


def test_abort_answers_truthfully_whether_anything_was_cancelled():
    """Case 18: twice, after the end, and for an id that never was."""
    engine = FakeEngine()
    engine.add("a", 3)
    finished = engine.add("b", 3)
    assert engine.scheduler.abort("a") is True
    assert engine.scheduler.abort("a") is False
    engine.run()
    assert engine.scheduler.abort("b") is False
    assert finished.finish_reason == "length"
    assert engine.scheduler.abort("never there") is False


def test_a_queue_whose_clients_leave_makes_room_at_once():
    """Case 17: one slot; A is streaming and leaves, B waits and leaves; C starts at once."""
    engine = FakeEngine(max_num_seqs=1)
    before = engine.pool.num_used
    decoding(engine, "A")
    engine.add("B", 3)
    engine.add("C", 3)
    engine.scheduler.abort("A")
    engine.scheduler.abort("B")
    assert engine.pool.num_used == before
    assert engine.step() == {"C": 3}


def test_aborting_a_queued_request_does_not_touch_a_decoding_one():
    """Case 19."""
    engine = FakeEngine(max_num_seqs=1)
    [running] = decoding(engine, "a", max_tokens=6)
    engine.add("b", 3)
    table, computed = list(running.block_table), running.num_computed_tokens
    engine.scheduler.abort("b")
    assert (running.block_table, running.num_computed_tokens) == (table, computed)
    engine.run()
    assert engine.tokens_of("a") == list(range(1000, 1006))


# Copies: n > 1


def with_copies(engine, *names, prompt=7, max_tokens=4, parent="a"):
    engine.add(parent, prompt, max_tokens)
    return [engine.add(name, prompt, max_tokens, copy_of=parent) for name in names]


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_copies_wait_for_the_prompt_and_then_compute_its_last_token(prefix_caching):
    engine = FakeEngine(max_num_batched_tokens=4, prefix_caching=prefix_caching)
    with_copies(engine, "b", "c")
    assert engine.step() == {"a": 4}
    assert engine.step() == {"a": 3}
    assert engine.step() == {"a": 1, "b": 1, "c": 1}
    engine.run()
    assert [len(engine.tokens_of(name)) for name in "abc"] == [4, 4, 4]


def test_copies_share_full_blocks_and_copy_the_one_they_write():
    engine = FakeEngine()
    b, c = with_copies(engine, "b", "c")
    engine.step()
    engine.step()
    a = engine.scheduler.running["a"]
    assert a.block_table[0] == b.block_table[0] == c.block_table[0]
    assert len({a.block_table[1], b.block_table[1], c.block_table[1]}) == 3
    assert engine.plan.block_copies == [
        (a.block_table[1], b.block_table[1]),
        (a.block_table[1], c.block_table[1]),
    ]


@pytest.mark.parametrize("prompt", [1, 5])
def test_nothing_is_copied_when_the_last_token_begins_a_block(prompt):
    engine = FakeEngine()
    with_copies(engine, "b", prompt=prompt)
    engine.step()
    assert engine.step() == {"a": 1, "b": 1}
    assert engine.plan.block_copies == []


@pytest.mark.parametrize("prompt", range(1, 10))
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_copies_of_any_prompt_read_their_own_text(prompt, prefix_caching):
    tokens = iter(range(1000, 2000))  # all different, also between copies
    engine = FakeEngine(
        num_blocks=30, prefix_caching=prefix_caching, next_token=lambda r: next(tokens)
    )
    with_copies(engine, "b", "c", "d", prompt=prompt, max_tokens=9)
    engine.run()
    assert set(engine.ends().values()) == {"length"}


def test_a_copy_of_a_request_that_generates_starts_at_once():
    engine = FakeEngine()
    decoding(engine, "a", prompt=7)
    engine.add("b", 7, copy_of="a")
    assert engine.step() == {"a": 1, "b": 1}


def test_a_copy_needs_a_block_for_its_copy_too():
    """Two shared, one of them copied: with one block left it runs, without it waits."""
    engine = FakeEngine(num_blocks=3, prefix_caching=False)
    decoding(engine, "a", prompt=6, max_tokens=3)
    engine.add("b", 6, max_tokens=1, copy_of="a")
    assert engine.step() == {"a": 1, "b": 1}
    engine = FakeEngine(num_blocks=2, prefix_caching=False)
    decoding(engine, "a", prompt=6, max_tokens=3)
    engine.add("b", 6, max_tokens=1, copy_of="a")
    assert engine.run() == [{"a": 1}, {"a": 1}, {"b": 6}]


@pytest.mark.parametrize("when", ["before its first step", "in its prompt", "in its output"])
def test_copies_of_an_aborted_request_still_run(when):
    engine = FakeEngine(max_num_batched_tokens=4)
    with_copies(engine, "b", "c")
    for _ in range(["before its first step", "in its prompt", "in its output"].index(when)):
        engine.step()
    engine.scheduler.abort("a")
    engine.run(most_steps=12)
    assert engine.ends() == {"b": "length", "c": "length"}


def test_copies_of_a_request_that_ends_with_its_first_token_still_run():
    engine = FakeEngine(prefix_caching=False)
    with_copies(engine, "b", "c", max_tokens=1)
    assert engine.run() == [{"a": 7}, {"b": 7, "c": 7}]


def test_copies_of_a_request_that_failed_still_run():
    engine = FakeEngine(next_token=lambda r: "NaN" if r.request_id == "a" else 7)
    with_copies(engine, "b", "c")
    engine.run(most_steps=10)
    assert engine.ends() == {"a": "error", "b": "length", "c": "length"}


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_copies_of_a_preempted_request_still_run(prefix_caching):
    """The parent loses its blocks in the middle of its prompt, and once more after it."""
    engine = FakeEngine(num_blocks=6, prefix_caching=prefix_caching, max_num_batched_tokens=5)
    engine.add("first", [7] * 4, max_tokens=17)
    with_copies(engine, "b", "c", prompt=14, max_tokens=6)
    engine.run(most_steps=80)
    assert engine.num_preemptions > 0
    assert set(engine.ends().values()) == {"length"}


def test_a_copy_that_waits_can_be_aborted():
    engine = FakeEngine(max_num_batched_tokens=4)
    with_copies(engine, "b", "c")
    assert engine.scheduler.abort("b") is True
    assert engine.scheduler.abort("b") is False
    engine.run()
    assert engine.ends() == {"a": "length", "c": "length"}


def test_a_copy_of_a_copy_waits_for_it():
    engine = FakeEngine()
    with_copies(engine, "b")
    engine.add("c", 7, copy_of="b")
    engine.run(most_steps=10)
    assert engine.ends() == {name: "length" for name in "abc"}


@pytest.mark.parametrize("parent", ["never there", "a"])
def test_a_copy_of_nobody_or_of_itself_is_computed_from_the_start(parent):
    engine = FakeEngine()
    engine.add("a", 7, max_tokens=1, copy_of=parent)
    assert engine.run(most_steps=2) == [{"a": 7}]


@pytest.mark.parametrize("fields", [{"prompt": [7] * 7}, {"prompt": 7, "cache_salt": "x"}])
def test_a_stranger_with_the_parents_id_shares_nothing(fields):
    """The parent has ended, and its id has been given to somebody else."""
    engine = FakeEngine(prefix_caching=False)
    engine.add("a", **fields, max_tokens=9)
    engine.step()
    engine.add("b", 7, copy_of="a")
    assert engine.step() == {"a": 1, "b": 7}


def test_a_preempted_copy_uses_the_cache_where_it_has_more_than_the_parent():
    engine = FakeEngine(num_blocks=8)
    engine.add("first", [7] * 4, max_tokens=10)
    [b] = with_copies(engine, "b", prompt=4, max_tokens=20)
    step_until(engine, lambda: b.state is State.PREEMPTED)
    known = b.num_tokens
    while b.state is State.PREEMPTED:
        computed = engine.step().get("b", 0)
    assert "a" in engine.scheduler.running
    assert known - computed >= 8  # the parent has the four of the prompt
    assert b.num_cached_tokens == 3  # as at its first admission: what it made itself isn't a hit


def test_the_requests_of_a_step_that_could_not_be_computed_fail_and_the_others_go_on():
    engine = FakeEngine(max_num_seqs=1)
    engine.add("a", 3)
    waiting = engine.add("b", 3)
    plan = engine.scheduler.plan(0.0)
    [event] = engine.scheduler.fail(plan, "the step failed: no memory", 1.0)
    assert (event.request_id, event.finish_reason) == ("a", "error")
    assert event.error == "the step failed: no memory"
    assert engine.scheduler.pool.num_used == 0
    step_until(engine, lambda: waiting.state is State.FINISHED)
    assert waiting.finish_reason == "length"


def test_cached_tokens_of_a_copy_are_those_it_need_not_compute():
    engine = FakeEngine()
    [b] = with_copies(engine, "b")
    engine.run()
    assert b.num_cached_tokens == 6


# What it costs, and what it does without


def test_the_scheduler_needs_no_torch():
    code = "import sys, labkit.engine.scheduler; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_request_that_waits_is_hashed_once_and_not_in_every_step(monkeypatch):
    hashed = []

    def counted(parent, tokens):
        hashed.append(tokens)
        return hash_block(parent, tokens)

    monkeypatch.setattr("labkit.engine.books.hash_block", counted)
    engine = FakeEngine(num_blocks=8)
    decoding(engine, "a", prompt=8, max_tokens=16)
    engine.add("b", [7] * 25)
    for _ in range(3):
        engine.step()
    assert len(hashed) == 2 + 6  # two full blocks of a, six of b


def test_the_hashes_of_a_request_are_a_chain_over_its_full_blocks():
    engine = FakeEngine()
    request = engine.add("a", 9, max_tokens=1, cache_salt="s")
    engine.run()
    assert request.block_hashes == chain("s", request.prompt_token_ids, 4)


def test_tokens_between_is_a_slice_of_all_known_tokens():
    request = Request("a", [1, 2, 3])
    request.output_token_ids += [4, 5, 6]
    for start in range(7):
        for end in range(start, 7):
            assert request.tokens_between(start, end) == request.token_ids[start:end]
