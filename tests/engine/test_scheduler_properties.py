"""What holds in every step of any history: requests, copies, aborts, and blocks that run out.

`FakeEngine` checks each plan, the books, and that each request reads its own text from memory.
Here is what happens, and what must have come of it in the end.
"""

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from scheduling import EOS, FakeEngine

from labkit.engine.policies import FCFS, EarliestDeadline, Fair, Priority
from labkit.engine.policies.preemption import Recompute, Swap
from labkit.engine.request import Request

# Few different tokens, so that beginnings are often equal.
tokens = st.lists(st.integers(0, 1), min_size=1, max_size=12)
endings = st.sampled_from([[], [], [], [EOS], ["a logit is NaN"]])
scripts = st.builds(list.__add__, tokens, endings)
lengths = st.integers(1, 16)
requests = st.fixed_dictionaries(
    {
        "request_id": st.sampled_from("abcdefgh"),
        "prompt": tokens,
        "scripts": st.lists(scripts, min_size=1, max_size=3),  # more than one: n > 1
        "max_tokens": lengths,
        "cache_salt": st.sampled_from(["", "", "x"]),
        "ignore_eos": st.booleans(),
        "priority": st.integers(-2, 2),
        "tenant": st.sampled_from(["red", "green", "blue"]),
    }
)


class AnybodyGivesWay(FCFS):
    """Takes the blocks of one at random, perhaps one that is in the step already."""

    def __init__(self, seed: int):
        super().__init__()
        self.random = Random(seed)

    def victim(self, running):
        return self.random.choice(list(running))


@dataclass
class Stream:
    """What is known of a request from outside: its script, and the events that came."""

    request: Request
    script: list[int | str]
    aborted: bool = False
    events: list = field(default_factory=list)

    def scripted(self, index: int) -> int | str:
        return self.script[index % len(self.script)]

    def check_end(self, pool) -> None:
        """Its tokens are those of the script, however it was scheduled, up to the right end."""
        request, tokens = self.request, [e.token_id for e in self.events if e.error is None]
        assert tokens == request.output_token_ids
        assert tokens == [self.scripted(index) for index in range(len(tokens))]
        ends = [event for event in self.events if event.finish_reason]
        assert ends == ([] if self.aborted else self.events[-1:])
        assert [event.time for event in self.events] == sorted({e.time for e in self.events})
        if self.aborted:
            assert request.finish_reason == "abort" and len(tokens) < request.max_tokens
            return
        [end] = ends
        assert end.finish_reason == request.finish_reason and end.error == request.error
        next_one = self.scripted(len(tokens))
        stops = [not request.ignore_eos and token == EOS for token in tokens]
        assert not any(stops[:-1])
        match end.finish_reason:
            case "stop":
                assert stops[-1]
            case "length":
                assert len(tokens) == request.max_tokens and not stops[-1]
            case "error" if isinstance(next_one, str) and end.error == next_one:
                assert len(tokens) < request.max_tokens
            case "error":
                assert "out of KV blocks" in end.error
                assert pool.blocks_for(request.num_tokens) > pool.num_blocks


class Histories(RuleBasedStateMachine):
    """Any order of arrivals, steps and aborts, on a small pool.

    Where `ends` is true each request must come to its end under the policy.
    """

    ends = True

    def policy(self, seed):
        return FCFS()

    @initialize(
        slots=st.integers(8, 64),  # room for one to six requests
        block_size=st.sampled_from([1, 2, 4, 4]),
        prefix_caching=st.booleans(),
        max_num_batched_tokens=st.sampled_from([1, 5, 16, 16, 32]),
        max_num_seqs=st.sampled_from([1, 3, 8]),
        max_model_len=st.sampled_from([None, None, 20]),
        num_host_blocks=st.sampled_from([0, 2, 99]),
        preemption=st.sampled_from([Recompute(), Swap()]),
        seed=st.integers(0, 99),
    )
    def start(self, slots, block_size, seed, **limits):
        policy = self.policy(seed)
        self.engine = FakeEngine(
            slots // block_size,
            block_size,
            next_token=self.next_token,
            policy=policy,
            **limits,
        )
        self.streams: dict[str, Stream] = {}  # of the latest request with an id
        self.past: list[Stream] = []

    def next_token(self, request):
        return self.streams[request.request_id].scripted(len(request.output_token_ids))

    @property
    def known(self):
        return self.engine.scheduler.known

    def try_to_add(self, request_id, prompt, script, max_tokens, **fields):
        """Adds a request where it is not refused, and is refused only for a reason."""
        pool, most = self.engine.pool, self.engine.scheduler.max_model_len
        least = max_tokens if fields.get("ignore_eos") else 1
        fits = pool.blocks_for(len(prompt) + least - 1) <= pool.num_blocks
        fits = fits and (most is None or len(prompt) + max_tokens <= most)
        if request_id in self.known or not fits:
            with pytest.raises(ValueError, match=f"'{request_id}'"):
                self.engine.add(request_id, prompt, max_tokens, **fields)
            return
        request = self.engine.add(request_id, prompt, max_tokens, **fields)
        if request_id in self.streams:
            self.past.append(self.streams[request_id])
        self.streams[request_id] = Stream(request, script)

    @rule(arrivals=st.lists(requests, min_size=1, max_size=4))
    def add(self, arrivals):
        for arrival in arrivals:
            self.add_one(**arrival)

    def add_one(self, request_id, scripts, **fields):
        self.try_to_add(request_id, script=scripts[0], **fields)
        for number, script in enumerate(scripts[1:]):
            copy_id = f"{request_id}.{number}"
            self.try_to_add(copy_id, script=script, copy_of=request_id, **fields)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), script=scripts, max_tokens=lengths)
    def add_late_copy(self, data, script, max_tokens):
        parent = self.known[data.draw(st.sampled_from(sorted(self.known)))]
        copy_id = data.draw(st.sampled_from("ABCD"))
        self.try_to_add(
            copy_id,
            parent.prompt_token_ids,
            script,
            max_tokens,
            copy_of=parent.request_id,
            cache_salt=parent.cache_salt,
        )

    @rule(count=st.integers(1, 5))
    def steps(self, count):
        for _ in range(count):
            self.step()

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def abort(self, data):
        self.abort_one(data.draw(st.sampled_from(sorted(self.known))))

    @precondition(lambda self: self.known)
    @rule(data=st.data(), again=st.booleans())
    def abort_while_a_step_is_computed(self, data, again):
        request_id = data.draw(st.sampled_from(sorted(self.known)))

        def meanwhile():
            if request_id in self.known:  # planning may have failed it
                self.abort_one(request_id)
            if again:
                self.try_to_add(request_id, [0, 1, 0], [1], 3)

        self.step(meanwhile)

    @rule(request_id=st.sampled_from("abcdefghABCD"))
    def abort_says_the_truth(self, request_id):
        if request_id not in self.known:
            assert self.engine.scheduler.abort(request_id) is False

    def abort_one(self, request_id):
        self.streams[request_id].aborted = True
        assert self.engine.scheduler.abort(request_id) is True
        assert self.engine.scheduler.abort(request_id) is False

    def step(self, meanwhile=None):
        seen = len(self.engine.events)
        current = dict(self.streams)
        self.engine.step(meanwhile)
        for event in self.engine.events[seen:]:
            current[event.request_id].events.append(event)

    def teardown(self):
        if not hasattr(self, "engine"):
            return
        # One that is never preempted by those that are left advances in each step.
        most = sum(r.num_prompt_tokens + r.max_tokens + 1 for r in self.known.values())
        while self.known and most > 0:
            self.step()
            most -= 1
        if not self.ends:  # nobody need be first for long
            for request_id in list(self.known):
                self.abort_one(request_id)
        assert not self.known and not self.engine.scheduler.has_unfinished()
        assert self.engine.pool.num_used == 0
        assert not self.engine.scheduler.copies and not self.engine.scheduler.policy.waiting
        for stream in [*self.past, *self.streams.values()]:
            stream.check_end(self.engine.pool)


class WhoeverGivesWay(Histories):
    ends = False

    def policy(self, seed):
        return AnybodyGivesWay(seed)


class ByPriority(Histories):
    def policy(self, seed):
        return Priority()


class ByPriorityWithAge(Histories):
    def policy(self, seed):
        return Priority(aging=1 + seed % 7)


class ByShare(Histories):
    def policy(self, seed):
        return Fair(weights={"red": 3})


class ByDeadline(Histories):
    def policy(self, seed):
        return EarliestDeadline()


MODERATE = settings(max_examples=100, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize(
    "machine", [Histories, WhoeverGivesWay, ByPriority, ByPriorityWithAge, ByShare, ByDeadline]
)
def test_any_history_keeps_the_books_and_ends(machine):
    run_state_machine_as_test(machine, settings=MODERATE)
