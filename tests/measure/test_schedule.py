"""Schedules: what is written down of a scheduler is what it did, and every play ends."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit import rungs
from labkit.engine.blocks import BlockPool
from labkit.engine.plan import StepPlan
from labkit.engine.policies import make_policy
from labkit.engine.policies.preemption import Recompute, Swap
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.measure.schedule import IDLE_STEPS, Part, play, watched
from labkit.model import loading
from labkit.workbook.cut import module_from
from labkit.workbook.parts import module_source

SIZE = 4  # tokens in a block


def scheduler_of(num_blocks=24, budget=8, num_seqs=4, caching=False, policy="fcfs", swap=False):
    host = BlockPool(num_blocks, SIZE, False) if swap else None
    return Scheduler(
        BlockPool(num_blocks, SIZE, caching),
        budget,
        num_seqs,
        policy=make_policy(policy),
        preemption=Swap() if swap else Recompute(),
        host=host,
    )


def request(name: str, prompt: int, max_tokens: int, arrival: float = 0.0, **fields) -> Request:
    return Request(name, [1] * prompt, max_tokens=max_tokens, arrival=arrival, **fields)


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks_then_decoded():
    schedule = play(scheduler_of(), [request("a", 10, 3)])
    assert [step.parts for step in schedule.steps] == [
        (Part("a", "prefill", 0, 8),),
        (Part("a", "prefill", 8, 2),),
        (Part("a", "decode", 10, 1),),
        (Part("a", "decode", 11, 1),),
    ]
    assert [(step.begin, step.end) for step in schedule.steps] == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert [len(step.blocks["a"]) for step in schedule.steps] == [2, 3, 3, 3]
    assert [step.finished for step in schedule.steps] == [(), (), (), ("a",)]
    assert schedule.reasons == {"a": "length"} and schedule.trouble == ""


def test_requests_enter_at_their_arrival_and_idle_time_is_skipped():
    late = request("late", 2, 1, arrival=7.5, tenant="red")
    schedule = play(scheduler_of(), [late, request("first", 2, 1)])
    assert [(step.begin, step.parts[0].request_id) for step in schedule.steps] == [
        (0.0, "first"),
        (7.5, "late"),
    ]
    assert schedule.arrivals == {"first": 0.0, "late": 7.5}
    assert schedule.tenants == {"first": "", "late": "red"}


def test_a_step_takes_what_step_seconds_says_of_its_tokens():
    schedule = play(scheduler_of(), [request("a", 8, 2)], step_seconds=lambda n: 0.5 * n)
    assert [step.end - step.begin for step in schedule.steps] == [4.0, 0.5]


def test_who_is_preempted_waits_resumes_and_ends():
    rivals = [request("first", 12, 12), request("second", 12, 12, 1.0)]
    schedule = play(scheduler_of(num_blocks=8, budget=16), rivals)
    lost = [i for i, step in enumerate(schedule.steps) if step.preempted]
    [back] = [i for i, step in enumerate(schedule.steps) if step.resumed]
    assert lost and lost[-1] < back
    assert schedule.steps[lost[0]].preempted == ("second",) == schedule.steps[back].resumed
    assert all("second" in step.waiting for step in schedule.steps[lost[0] : back])
    assert all("second" not in step.blocks for step in schedule.steps[lost[0] : back])
    assert schedule.steps[-1].finished == ("second",)


def test_swapped_blocks_are_counted_out_and_in():
    rivals = [request("first", 12, 12), request("second", 12, 12, 1.0)]
    schedule = play(scheduler_of(num_blocks=8, budget=16, swap=True), rivals)
    out, back = map(sum, zip(*(step.swapped for step in schedule.steps), strict=True))
    assert out == back > 0
    kinds = [p.kind for s in schedule.steps for p in s.parts if p.request_id == "second"]
    assert kinds == ["prefill"] + ["decode"] * 11  # nothing is computed twice


def test_a_request_that_never_fits_is_refused_by_name_and_the_others_are_served():
    schedule = play(scheduler_of(num_blocks=2), [request("huge", 99, 1), request("a", 2, 1)])
    assert "never fit" in schedule.refused["huge"]
    assert [step.finished for step in schedule.steps] == [("a",)]


def test_a_stop_token_ends_a_request_before_its_time():
    one = request("a", 2, 9, stop_token_ids=frozenset({5}))
    schedule = play(scheduler_of(), [one], token=lambda r: 3 + len(r.output_token_ids))
    assert len(schedule.steps) == 3 and schedule.reasons == {"a": "stop"}


class Lazy(Scheduler):
    """Plans nothing, ever."""

    def plan(self, now):
        return StepPlan(self.max_num_batched_tokens, now)


class Broken(Scheduler):
    def plan(self, now):
        if now >= 2:
            raise KeyError("a")
        return super().plan(now)


class Silent(Scheduler):
    def plan(self, now):
        super().plan(now)


class Forgetful(Scheduler):
    """Computes the prompt again and again: `commit` doesn't write down that it is computed."""

    def commit(self, plan, sampled, now):
        return []


class Leaves(Scheduler):
    def plan(self, now):
        raise SystemExit


class Strange(Scheduler):
    def plan(self, now):
        plan = super().plan(now)
        plan.chunks = [*plan.chunks.values()]
        return plan


class Refuses(Scheduler):
    def add(self, request):
        raise AttributeError("no line")


@pytest.mark.parametrize(
    "kind, num_steps, why",
    [
        (Lazy, IDLE_STEPS, "compute nothing"),
        (Broken, 2, "plan raised KeyError: 'a'"),
        (Silent, 0, "plan gave None"),
        (Leaves, 0, "plan raised SystemExit"),
        (Strange, 0, "what plan gave can't be read: it raised AttributeError: 'list' object"),
        (Forgetful, 100 + 5 * 12, "more than these requests can need"),
        (Refuses, 0, "add raised AttributeError: no line"),
    ],
)
def test_play_ends_and_says_why_when_a_scheduler_gets_no_further(kind, num_steps, why):
    schedule = play(kind(BlockPool(24, SIZE), 8), [request("a", 8, 4)])
    assert len(schedule.steps) == num_steps
    assert why in schedule.trouble and f"after step {num_steps}:" in schedule.trouble


def test_a_scheduler_of_a_spliced_module_plays_like_labkits_own():
    source = module_source("labkit.engine.scheduler")
    mine = module_from("labkit.engine.scheduler", source).Scheduler
    assert mine is not Scheduler
    asked = [("a", 12, 12, 0.0), ("b", 12, 12, 1.0)]
    schedules = [
        play(kind(BlockPool(8, SIZE), 16), [request(*one) for one in asked])
        for kind in (mine, Scheduler)
    ]
    assert schedules[0] == schedules[1] and len(schedules[0].steps) > 12


def test_a_lazy_scheduler_waits_for_a_deadline_that_ends_its_request():
    class UntilDeadline(Scheduler):
        def _admit(self, plan, before=None):
            pass

    schedule = play(UntilDeadline(BlockPool(24, SIZE), 8), [request("a", 8, 4, deadline=6.0)])
    assert schedule.reasons == {"a": "deadline"} and schedule.trouble == ""


def test_what_can_not_be_played_is_refused():
    used = request("a", 2, 1)
    play(scheduler_of(), [used])
    with pytest.raises(ValueError, match="'a' was served before"):
        play(scheduler_of(), [used])
    with pytest.raises(ValueError, match="more than 0"):
        play(scheduler_of(), [request("a", 2, 1)], step_seconds=lambda n: 0)


shapes = st.lists(
    st.tuples(st.integers(1, 20), st.integers(1, 12), st.integers(0, 12), st.integers(-1, 1)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=50, deadline=None)
@given(
    shapes,
    st.integers(8, 14),
    st.integers(1, 12),
    st.sampled_from(["fcfs", "priority", "fair"]),
    st.booleans(),
    st.booleans(),
)
def test_what_holds_in_every_schedule(shapes, num_blocks, budget, policy, caching, swap):
    asked = [
        request(f"r{i}", prompt, out, arrival, priority=urgent, tenant=f"t{urgent}")
        for i, (prompt, out, arrival, urgent) in enumerate(shapes)
    ]
    scheduler = scheduler_of(num_blocks, budget, 3, caching, policy, swap)
    schedule = play(scheduler, asked)

    assert schedule.trouble == "" and len(schedule.reasons) == len(asked)
    ends = Counter(name for step in schedule.steps for name in step.finished)
    assert ends == Counter(r.request_id for r in asked)
    done, away, redone = {}, set(), set()
    for step in schedule.steps:
        assert 0 < step.num_tokens <= budget or step.preempted
        assert len(step.parts) <= 3 and step.num_used <= num_blocks
        for name in step.preempted:
            away.add(name)
            redone.add(name)  # from the start, from a cached prefix, or on where it was
        assert {*step.resumed} <= away and not {*step.blocks} & {*step.waiting}
        away -= {*step.resumed}
        assert away <= {*step.waiting}
        for part in step.parts:
            name, before = part.request_id, done.get(part.request_id, 0)
            if name in redone:
                assert part.start <= before and (caching or swap or part.start == 0)
            else:  # no token is left out
                assert part.start == before or caching and name not in done
            redone.discard(name)
            done[name] = part.start + part.num_tokens
            assert len(step.blocks[name]) == -(-done[name] // SIZE)
        holders = Counter(block for table in step.blocks.values() for block in table)
        assert all(0 <= block < num_blocks for block in holders)
        if not caching:
            assert all(count == 1 for count in holders.values())
        for place, table in enumerate(step.blocks.values()):  # shared only at the same place
            for other in [*step.blocks.values()][place + 1 :]:
                same = [a == b for a, b in zip(table, other, strict=False)]
                assert len({*table} & {*other}) == sum(same)
    for r in asked:
        assert done[r.request_id] == r.num_prompt_tokens + r.max_tokens - 1


def test_a_real_engine_is_watched_and_left_as_it_was():
    engine = rungs.make(
        "continuous", loading.load_decoder("tiny"), num_blocks=32, block_size=4,
        max_num_batched_tokens=8,
    )  # fmt: skip
    before = Request("before", [3] * 12, max_tokens=3, ignore_eos=True)
    engine.add(before)
    with watched(engine) as schedule:
        engine.step()
        engine.add(Request("after", [4] * 3, max_tokens=2, ignore_eos=True))
        while engine.has_unfinished():
            engine.step()
    assert [step.parts for step in schedule.steps][:2] == [
        (Part("before", "prefill", 0, 8),),
        (Part("before", "prefill", 8, 4), Part("after", "prefill", 0, 3)),
    ]
    assert schedule.steps[0].begin == 0.0
    assert schedule.arrivals["before"] <= 0 < schedule.arrivals["after"]
    for one, next_one in zip(schedule.steps, schedule.steps[1:], strict=False):
        assert one.begin < one.end <= next_one.begin
    assert schedule.reasons == {"before": "length", "after": "length"}

    num_steps = len(schedule.steps)
    engine.add(Request("later", [5] * 3, max_tokens=1, ignore_eos=True))
    engine.step()
    assert len(schedule.steps) == num_steps and not engine.has_unfinished()


def test_a_step_of_a_real_engine_that_fails_is_told():
    engine = rungs.make("continuous", loading.load_decoder("tiny"), num_blocks=32, block_size=4)
    engine.add(Request("a", [3] * 5, max_tokens=3))

    def broken(plan):
        raise RuntimeError("out of memory")

    engine.compute = broken
    with watched(engine) as schedule:
        engine.step()
    assert [step.finished for step in schedule.steps] == [("a",)]
    assert schedule.reasons == {"a": "error"}
