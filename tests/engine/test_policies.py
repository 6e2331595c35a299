"""Who goes first, who gives way, and what that means for those who wait."""

from random import Random

import pytest
from scheduling import FakeEngine

from labkit.engine.blocks import BlockPool
from labkit.engine.pace import Pace
from labkit.engine.policies import POLICIES, EarliestDeadline, Fair, InOrder, Priority, make_policy
from labkit.engine.policies.preemption import Cheaper, Recompute, Swap
from labkit.engine.request import Request, State
from labkit.engine.scheduler import Scheduler


def ran(schedule: list[dict]) -> list[str]:
    """Which requests ran in each step, as a text."""
    return ["".join(sorted(step)) for step in schedule]


# Priority


def test_the_lower_number_goes_first_and_may_be_negative():
    engine = FakeEngine(max_num_seqs=1, policy=Priority())
    for name, priority in [("a", 3), ("b", 0), ("c", -7), ("d", 0)]:
        engine.add(name, 2, max_tokens=1, priority=priority)
    assert ran(engine.run()) == ["c", "b", "d", "a"]


def test_an_urgent_request_takes_the_slot_and_equals_do_not():
    engine = FakeEngine(max_num_seqs=1, policy=Priority())
    slow = engine.add("slow", 4, max_tokens=4, priority=5)
    engine.step()
    engine.add("urgent", 4, max_tokens=2, priority=0)
    engine.add("equal", 4, max_tokens=2, priority=0)
    assert ran(engine.run()) == ["urgent"] * 2 + ["equal"] * 2 + ["slow"] * 3
    assert slow.num_preemptions == engine.num_preemptions == 1
    assert engine.tokens_of("slow") == [1000, 1001, 1002, 1003]


def test_equal_requests_never_take_from_each_other():
    engine = FakeEngine(max_num_seqs=1, policy=Priority())
    for name in "abc":
        engine.add(name, 4, max_tokens=3)
    assert ran(engine.run()) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    assert engine.num_preemptions == 0


def test_an_urgent_request_takes_blocks_and_only_from_the_less_urgent():
    engine = FakeEngine(num_blocks=4, prefix_caching=False, policy=Priority())
    engine.add("batch", [1] * 6, max_tokens=3, priority=5)
    engine.add("chat", [2] * 6, max_tokens=3, priority=1)
    engine.step()
    engine.add("urgent", [3] * 5, max_tokens=2, priority=0)
    assert set(engine.step()) == {"chat", "urgent"}
    assert [r.request_id for r in engine.plan.preempted] == ["batch"]
    engine.run()
    assert set(engine.ends().values()) == {"length"}


def test_nobody_is_preempted_where_it_would_not_be_enough():
    engine = FakeEngine(num_blocks=4, prefix_caching=False, policy=Priority())
    engine.add("other", [1] * 9, max_tokens=3, priority=0)
    engine.add("batch", [2] * 3, max_tokens=3, priority=5)
    engine.step()
    engine.add("long", [3] * 8, max_tokens=2, priority=1)
    assert set(engine.step()) == {"other", "batch"}
    assert engine.num_preemptions == 0


def test_a_prompt_under_way_does_not_keep_an_urgent_one_waiting():
    engine = FakeEngine(num_blocks=64, max_num_batched_tokens=8, policy=Priority())
    engine.add("long", 64, max_tokens=1, priority=5)
    engine.step()
    engine.add("urgent", [1] * 8, max_tokens=1, priority=0)
    assert engine.step() == {"urgent": 8}
    assert engine.num_preemptions == 0  # it had a slot and blocks, and only waits for a step


@pytest.mark.parametrize(("aging", "ends"), [(None, False), (4.0, True)])
def test_without_aging_the_least_urgent_may_wait_for_ever(aging, ends):
    engine = FakeEngine(max_num_seqs=1, policy=Priority(aging))
    patient = engine.add("patient", 2, max_tokens=2, priority=5, arrival=0)
    for step in range(100):
        engine.add(f"u{step}", 2, max_tokens=1, priority=0, arrival=step)
        engine.step()
    assert (patient.state is State.FINISHED) == ends
    if ends:  # 5 in priority at one in four seconds, and those that were ahead by then
        ended = next(e.time for e in engine.events if e.request_id == "patient")
        assert ended <= 2 * 5 * 4 + 4


def test_age_gives_no_right_to_preempt_and_protects_whom_it_admitted():
    engine = FakeEngine(max_num_seqs=1, policy=Priority(aging=1.0))
    engine.add("first", 2, max_tokens=8, priority=3, arrival=0)
    engine.step()
    engine.add("old", 2, max_tokens=6, priority=3, arrival=-50)  # aged to far below 0
    engine.step()
    assert engine.num_preemptions == 0
    while "first" not in engine.ends():
        engine.step()
    engine.step()
    assert list(engine.scheduler.running) == ["old"]
    engine.add("urgent", 2, max_tokens=1, priority=-9, arrival=engine.num_steps)
    engine.step()
    assert list(engine.scheduler.running) == ["old"] and engine.num_preemptions == 0


def test_a_preempted_request_keeps_its_place_among_equals():
    engine = FakeEngine(max_num_seqs=1, policy=Priority())
    engine.add("first", 2, max_tokens=3, priority=5)
    engine.step()
    engine.add("second", 2, max_tokens=1, priority=5)
    engine.add("urgent", 2, max_tokens=1, priority=0)
    assert ran(engine.run()) == ["urgent", "first", "first", "second"]


def test_the_line_keeps_no_trace_of_thousands_that_were_aborted():
    policy = Priority()
    scheduler = Scheduler(BlockPool(4, 4), max_num_seqs=1, policy=policy)
    for i in range(5000):
        scheduler.add(Request(f"r{i}", [1, 2], max_tokens=1, priority=i % 3))
        scheduler.abort(f"r{i}")
    assert len(policy) == 0 and len(policy.line) < 200


# Fair


def waiting(engine):
    return [request for request in engine.everybody if request.state is State.WAITING]


def service_of(engine, tenants, fair):
    """What each tenant has been served, by the requests' own numbers and not by the counters."""
    totals = dict.fromkeys(tenants, 0.0)
    for request in engine.everybody:
        admitted = request.state is not State.WAITING
        prompt = fair.input_weight * request.num_prompt_tokens * admitted
        totals[request.tenant] += prompt + fair.output_weight * len(request.output_token_ids)
    return {t: totals[t] / fair.weights.get(t, 1.0) for t in tenants}


@pytest.mark.parametrize("seed", range(30))
def test_backlogged_tenants_differ_by_no_more_than_the_bound_of_the_paper(seed):
    """|W_f - W_g| <= 2 max(w_p L_input, w_q M) in any interval (Sheng et al., 2024, theorem 4.4).

    M is the pool in tokens; nobody is preempted. With weights, service is divided by them, and
    the bound by the least.
    """
    draw = Random(seed)
    fair = Fair({"f": draw.choice([1, 1, 3, 0.3])}, draw.choice([1, 2]), draw.choice([1, 2, 5]))
    slots = draw.choice([1, 3, 8])
    engine = FakeEngine(
        num_blocks=10 * slots, prefix_caching=False, policy=fair, max_num_seqs=slots,
        max_num_batched_tokens=draw.choice([4, 16, 64]),
    )  # fmt: skip
    engine.everybody, longest, tenants = [], 1, ["f", "g", "h"]

    def keep_backlogged():
        nonlocal longest
        for tenant in tenants:  # one sends long prompts, one long answers, one anything
            while sum(r.tenant == tenant for r in waiting(engine)) < 3:
                prompt = draw.randint(1, 20 if tenant != "g" else 2)
                answer = draw.randint(1, 20 if tenant != "f" else 2)
                longest = max(longest, prompt)
                name = f"{tenant}{len(engine.everybody)}"
                engine.everybody.append(engine.add(name, prompt, answer, tenant=tenant))

    differences = {(a, b): [] for a in tenants for b in tenants if a < b}
    for _ in range(150):
        keep_backlogged()
        engine.step()
        service = service_of(engine, tenants, fair)
        for a, b in differences:
            differences[a, b].append(service[a] - service[b])
    assert engine.num_preemptions == 0  # a slot has room for the longest: 40 tokens
    pool_tokens = engine.pool.num_blocks * engine.pool.block_size
    bound = 2 * max(fair.input_weight * longest, fair.output_weight * pool_tokens)
    bound /= min(1.0, *fair.weights.values())
    for values in differences.values():
        assert max(values) - min(values) <= bound
    assert min(service.values()) > 0


def test_a_tenant_that_was_away_gets_no_burst():
    engine = FakeEngine(max_num_seqs=1, policy=Fair())
    for i in range(30):
        engine.add(f"a{i:02}", 2, max_tokens=2, tenant="a")
    for _ in range(30):
        engine.step()
    for i in range(10):
        engine.add(f"b{i:02}", 2, max_tokens=2, tenant="b")
    turns = [next(iter(engine.step())) for _ in range(24)][::2]
    assert {abs(turns[:n].count("a") - turns[:n].count("b")) for n in range(2, 13, 2)} == {0}


def test_twice_the_weight_is_twice_the_service():
    engine = FakeEngine(max_num_seqs=1, policy=Fair({"big": 2}))
    for i in range(60):
        engine.add(f"x{i}", 2, max_tokens=2, tenant="big")
        engine.add(f"y{i}", 2, max_tokens=2, tenant="small")
    turns = [next(iter(engine.step()))[0] for _ in range(60)]
    assert turns.count("x") == 2 * turns.count("y")


def test_many_comings_and_goings_leave_no_trace():
    fair = Fair()
    scheduler = Scheduler(BlockPool(4, 4), policy=fair)
    for i in range(3000):
        scheduler.add(Request(f"r{i}", [1], max_tokens=1, tenant=f"t{i % 3}"))
        scheduler.abort(f"r{i}")
    assert len(fair.least) <= 3 and not fair.waiting


# Deadline


def can_all_be_on_time(jobs, slots) -> bool:
    """Whether each (release, deadline) can have a step and a slot of its own: a matching."""
    taken: dict[tuple[int, int], int] = {}

    def place(job, seen):
        release, deadline = jobs[job]
        for where in ((t, s) for t in range(release, deadline + 1) for s in range(slots)):
            if where not in seen:
                seen.add(where)
                if where not in taken or place(taken[where], seen):
                    taken[where] = job
                    return True
        return False

    return all(place(job, set()) for job in range(len(jobs)))


@pytest.mark.parametrize("seed", range(60))
def test_unit_jobs_are_on_time_wherever_they_can_all_be(seed):
    draw = Random(seed)
    slots = draw.choice([1, 2, 3])
    releases = sorted(draw.randint(1, 8) for _ in range(draw.randint(3, 8 * slots)))
    jobs = [(release, release + draw.randint(0, 6)) for release in releases]
    engine = FakeEngine(num_blocks=32, max_num_seqs=slots, policy=EarliestDeadline())
    left = list(enumerate(jobs))
    for step in range(1, 20):
        while left and left[0][1][0] == step:
            number, (release, deadline) = left.pop(0)
            engine.add(str(number), [number], 1, deadline=deadline, arrival=release)
        engine.step()
    missed = [name for name, reason in engine.ends().items() if reason == "deadline"]
    if can_all_be_on_time(jobs, slots):
        assert not missed
    else:
        assert missed


def steps_of(scheduler, count, start=0.0, seconds=lambda plan: 0.1 + 0.01 * plan.num_tokens):
    """Some steps on a clock of our own; the events and the time after them."""
    now, events, plans = start, [], []
    for _ in range(count):
        plan = scheduler.plan(now)
        plans.append(plan)
        now += seconds(plan)
        results = [type("Sampled", (), {"token_id": 7, "logprobs": None, "error": None})] * 99
        events += scheduler.commit(plan, results, now)
    return events, plans, now


def learned(policy) -> tuple[Scheduler, float]:
    """A scheduler that has seen steps of several sizes."""
    scheduler = Scheduler(BlockPool(64, 4), max_num_batched_tokens=16, policy=policy)
    for i in range(3):
        scheduler.add(Request(f"w{i}", [1] * 20, max_tokens=6, ignore_eos=True))
    _, _, now = steps_of(scheduler, 20)
    assert not scheduler.has_unfinished()
    return scheduler, now


def test_a_deadline_that_can_not_be_met_is_refused_at_once_with_the_estimate():
    scheduler, now = learned(EarliestDeadline())
    # 10 prompt tokens and 20 answers: 20 steps of 0.1 s and 29 tokens of 0.01 s
    with pytest.raises(ValueError, match=r"take about 2\.290 s, 2\.000 s are left"):
        scheduler.add(Request("late", [8] * 10, 20, arrival=now, deadline=now + 2))
    assert not scheduler.known and not scheduler.deadlines
    scheduler.add(Request("fine", [9] * 10, 20, arrival=now, deadline=now + 2.3))
    events, _, _ = steps_of(scheduler, 20, now)
    assert events[-1].finish_reason == "length" and events[-1].time <= now + 2.3


def test_one_that_waited_too_long_is_refused_before_anything_is_computed_for_it():
    scheduler, now = learned(EarliestDeadline())
    scheduler.max_num_seqs = 1
    scheduler.add(Request("first", [8] * 10, 20, arrival=now, deadline=now + 3))
    scheduler.add(Request("second", [2] * 10, 20, arrival=now, deadline=now + 4))
    events, plans, _ = steps_of(scheduler, 30, now)
    [end] = [e for e in events if e.request_id == "second"]
    assert end.finish_reason == "deadline" and "take about 2.290 s" in end.error
    assert all("second" not in plan.chunks for plan in plans)


@pytest.mark.parametrize("policy", POLICIES)
def test_whoever_runs_past_its_deadline_ends_under_any_policy(policy):
    engine = FakeEngine(policy=make_policy(policy))
    engine.add("late", 3, max_tokens=9, deadline=4)
    engine.add("waits", 3, max_tokens=9)
    engine.run()
    assert engine.ends()["late"] == "deadline" and engine.ends()["waits"] == "length"
    assert len(engine.tokens_of("late")) == 4 and engine.pool.num_used == 0


def test_a_deadline_is_not_that_of_a_stranger_with_the_same_id():
    engine = FakeEngine()
    engine.add("a", 3, max_tokens=2, deadline=4)
    engine.run()
    engine.add("a", 3, max_tokens=9, deadline=50)
    engine.run()
    assert engine.ends()["a"] == "length" and len(engine.tokens_of("a")) == 11


# Preemption


def swapping(num_host_blocks=8, preemption=None, **options):
    preemption = Swap() if preemption is None else preemption
    return FakeEngine(
        num_host_blocks=num_host_blocks, preemption=preemption, max_num_seqs=1,
        policy=Priority(), **options,
    )  # fmt: skip


def interrupted(engine):
    """A request that was preempted, and comes back."""
    slow = engine.add("slow", 6, max_tokens=6, priority=5)
    for _ in range(3):
        engine.step()
    engine.add("urgent", [1], max_tokens=1, priority=0)
    engine.step()
    return slow


def test_what_was_swapped_out_is_not_computed_again():
    engine = swapping(prefix_caching=False)
    slow = interrupted(engine)
    assert slow.state is State.PREEMPTED and slow.num_computed_tokens == 8
    assert engine.pool.num_used == 0 and engine.scheduler.books.host.num_used == 2
    assert engine.run() == [{"slow": 1}] * 3
    assert (slow.num_preemptions, slow.num_swaps) == (1, 1)
    assert engine.tokens_of("slow") == [1000 + i for i in range(6)]
    assert engine.scheduler.books.host.num_used == 0


def test_without_room_on_the_host_it_is_computed_again():
    engine = swapping(num_host_blocks=1, prefix_caching=False)
    slow = interrupted(engine)
    assert slow.num_computed_tokens == 0 and slow.num_swaps == 0
    assert engine.run() == [{"slow": 9}, {"slow": 1}, {"slow": 1}]
    assert engine.tokens_of("slow") == [1000 + i for i in range(6)]


def test_abort_frees_the_blocks_of_both_tiers():
    engine = swapping()
    slow = interrupted(engine)
    assert engine.scheduler.abort("slow") is True and engine.scheduler.abort("slow") is False
    assert slow.host_blocks == [] and engine.scheduler.books.host.num_used == 0


def test_a_step_that_fails_takes_what_it_swapped_out_with_it():
    """It may not have been copied; the request is computed again and nothing is lost."""
    engine = swapping()
    slow = engine.add("slow", 6, max_tokens=3, priority=5)
    engine.step()
    engine.add("urgent", [1], max_tokens=1, priority=0)
    plan = engine.scheduler.plan(now=2)
    assert plan.swap_out
    events = engine.scheduler.fail(plan, "out of memory", now=2)
    assert [(e.request_id, e.finish_reason) for e in events] == [("urgent", "error")]
    assert slow.num_computed_tokens == 0 and engine.scheduler.books.host.num_used == 0
    engine.run()
    assert engine.tokens_of("slow") == [1000, 1001, 1002]


@pytest.mark.parametrize(("bandwidth", "swapped"), [(1e9, True), (1e3, False)])
def test_the_cheaper_way_is_taken(bandwidth, swapped):
    engine = swapping(preemption=Cheaper(bytes_per_token=1000, copy_bandwidth=bandwidth))
    engine.scheduler.pace.observe(10, 1.0)
    engine.scheduler.pace.observe(20, 2.0)
    assert interrupted(engine).num_swaps == swapped


# The budget of a step, and how it is learned


def test_pace_finds_the_line_and_follows_a_change():
    pace = Pace()
    assert pace.tokens_within(1) is None and pace.seconds(Request("r", [1])) == 0
    for tokens in (1, 64, 8, 256, 30):
        pace.observe(tokens, 0.02 + 0.001 * tokens)
    assert (pace.fixed, pace.per_token) == pytest.approx((0.02, 0.001))
    assert pace.tokens_within(0.1) == pytest.approx(80, abs=1)
    for _ in range(300):
        for tokens in (1, 64, 256):
            pace.observe(tokens, 0.04 + 0.002 * tokens)
    assert (pace.fixed, pace.per_token) == pytest.approx((0.04, 0.002), rel=1e-3)


def test_a_target_for_the_gap_between_tokens_bounds_the_chunk():
    scheduler = Scheduler(BlockPool(200, 4), max_num_batched_tokens=128, itl_target=0.5)
    scheduler.add(Request("warm", [1] * 300, max_tokens=3, ignore_eos=True))
    _, _, now = steps_of(scheduler, 9)
    scheduler.add(Request("talks", [2] * 8, max_tokens=40, ignore_eos=True))
    _, _, now = steps_of(scheduler, 2, now)
    scheduler.add(Request("long", [3] * 300, max_tokens=1, ignore_eos=True))
    _, plans, _ = steps_of(scheduler, 12, now)
    chunks = [p.chunks["long"].num_tokens for p in plans if "long" in p.chunks]
    assert sum(chunks) == 300 and max(chunks) == 39  # with the one that talks 40: 0.1 + 0.4 s
    assert all("talks" in plan.chunks for plan in plans)


# What is refused


def test_bad_options_are_refused_by_name():
    with pytest.raises(ValueError, match="'first' is not known.*fcfs, priority, fair, deadline"):
        make_policy("first")
    with pytest.raises(ValueError, match="'fcfs' has no option 'aging'"):
        make_policy("fcfs", aging=1)
    with pytest.raises(ValueError, match="aging is 0"):
        Priority(aging=0)
    with pytest.raises(ValueError, match="weight of 'x' is -1"):
        Fair({"x": -1})
    with pytest.raises(ValueError, match="itl_target is 0"):
        Scheduler(BlockPool(4, 4), itl_target=0)


def test_a_policy_of_ones_own_is_ten_lines():
    class ShortestFirst(InOrder):
        def key(self, request):
            return request.max_tokens - len(request.output_token_ids)

    engine = FakeEngine(max_num_seqs=1, policy=ShortestFirst(), preemption=Recompute())
    for name, length in [("a", 3), ("b", 1), ("c", 2)]:
        engine.add(name, 2, max_tokens=length)
    assert ran(engine.run()) == ["b", "c", "c", "a", "a", "a"]


# Found by attack


def test_one_tenant_after_the_other_does_not_keep_an_early_one_waiting():
    """Newcomers are lifted to the smallest counter: of equal ones the first in line goes first."""
    engine = FakeEngine(max_num_seqs=1, policy=Fair())
    engine.add("z", 2, max_tokens=2, tenant="zoe")
    for step in range(12):
        engine.add(f"a{step}", 2, max_tokens=2, tenant=f"new{step}")
        engine.add(f"b{step}", 2, max_tokens=2, tenant=f"newb{step}")
        engine.step()
    assert engine.ends().get("z") == "length"


def test_who_comes_while_the_line_is_empty_is_lifted_to_what_was_served_until_now():
    engine = FakeEngine(num_blocks=64, max_num_seqs=1, policy=Fair())
    engine.add("a", 2, max_tokens=100, tenant="a")
    engine.run()
    for i in range(20):
        engine.add(f"b{i}", 2, max_tokens=2, tenant="b")
        engine.add(f"c{i}", 2, max_tokens=2, tenant="a")
    turns = [next(iter(engine.step()))[0] for _ in range(40)]
    assert turns.count("b") == turns.count("c") == 20


def test_counters_of_a_million_tenants_are_not_kept():
    fair = Fair()
    scheduler = Scheduler(BlockPool(4, 4), policy=fair)
    for i in range(5000):
        scheduler.add(Request(f"r{i}", [1], max_tokens=1, tenant=f"t{i}"))
        steps_of(scheduler, 1)
    assert len(fair.counters) < 1100 and not fair.served


@pytest.mark.parametrize(("slots", "budget", "busy"), [(1, 1, 1), (8, 4, 4)])
def test_an_urgent_one_runs_though_those_that_generate_need_the_whole_budget(slots, budget, busy):
    engine = FakeEngine(
        num_blocks=64, max_num_seqs=slots, max_num_batched_tokens=budget, policy=Priority()
    )
    for i in range(busy):
        engine.add(f"slow{i}", [i], max_tokens=30, priority=5)
    while len(engine.scheduler.running) < busy:
        engine.step()
    engine.step()
    engine.add("urgent", [99], max_tokens=1, priority=0)
    engine.step()
    assert "urgent" in engine.ends()


def test_blocks_that_it_would_share_are_no_gain_of_preempting():
    engine = FakeEngine(num_blocks=8, policy=Priority())
    start = list(range(1, 13))
    engine.add("other", [77] * 9, max_tokens=3, priority=0)
    engine.add("batch", [*start, 50], max_tokens=3, priority=5)
    engine.step()
    engine.add("long", [*start, *range(60, 69)], max_tokens=1, priority=1)
    assert set(engine.step()) == {"other", "batch"} and engine.num_preemptions == 0


def test_one_pause_does_not_lock_deadlines_out():
    policy = EarliestDeadline()
    scheduler = Scheduler(BlockPool(64, 4), policy=policy)
    scheduler.add(Request("w", [1] * 4, max_tokens=60, ignore_eos=True))
    pauses = iter([0.01] * 50 + [60.0] + [0.01] * 20)
    _, _, now = steps_of(scheduler, 60, seconds=lambda plan: next(pauses))
    scheduler.add(Request("r", [1] * 4, 20, arrival=now, deadline=now + 10))
    assert "r" in scheduler.known


def test_an_idle_engine_doubts_an_estimate_that_refuses_all():
    scheduler = Scheduler(BlockPool(64, 4), policy=EarliestDeadline())
    for _ in range(50):
        scheduler.pace.observe(1, 5.0)  # a bad time, now over
    refused = 0
    while "r" not in scheduler.known and refused < 40:
        try:
            scheduler.add(Request("r", [1], 20, arrival=0, deadline=10))
        except ValueError:
            refused += 1
    assert 0 < refused < 40


def test_a_long_time_of_equal_steps_does_not_forget_what_a_prompt_costs():
    pace = Pace()
    for tokens in (8, 200, 64, 500):
        pace.observe(tokens, 0.02 + 0.001 * tokens)
    for _ in range(5000):
        pace.observe(8, 0.028)
    assert pace.per_token == pytest.approx(0.001, rel=0.05)
    assert pace.tokens_within(0.1) == pytest.approx(80, rel=0.1)


def test_a_target_below_one_step_still_lets_prompts_through_in_chunks():
    scheduler = Scheduler(BlockPool(300, 4), max_num_batched_tokens=512, itl_target=1e-3)
    scheduler.add(Request("warm", [1] * 300, max_tokens=3, ignore_eos=True))
    _, plans, now = steps_of(scheduler, 5)
    scheduler.add(Request("long", [2] * 500, max_tokens=1))
    _, plans, _ = steps_of(scheduler, 1, now)
    assert plans[0].chunks["long"].num_tokens == 500  # nobody generates who would have to wait


def test_deadlines_of_requests_that_ended_are_not_kept():
    scheduler = Scheduler(BlockPool(4, 4))
    for i in range(5000):
        scheduler.add(Request(f"r{i}", [1], max_tokens=1, deadline=1e6))
        scheduler.abort(f"r{i}")
    assert len(scheduler.deadlines) < 200


def test_a_step_that_fails_leaves_a_new_request_of_an_aborted_id_alone():
    engine = FakeEngine()
    engine.add("a", 3)
    plan = engine.scheduler.plan(1)
    engine.scheduler.abort("a")
    again = engine.add("a", 5, max_tokens=2)
    assert engine.scheduler.fail(plan, "boom", 1) == []
    engine.run()
    assert again.finish_reason == "length"


def test_a_policy_holds_the_line_of_one_scheduler():
    policy = Priority()
    Scheduler(BlockPool(4, 4), policy=policy)
    with pytest.raises(ValueError, match="serves another scheduler"):
        Scheduler(BlockPool(4, 4), policy=policy)


@pytest.mark.parametrize(
    "fields",
    [
        {"cache_salt": None}, {"tenant": 3}, {"priority": 10**400}, {"priority": 1.0},
        {"priority": True}, {"arrival": "x"}, {"arrival": float("nan")}, {"deadline": 10**400},
        {"deadline": float("nan")}, {"deadline": False},
    ],
)  # fmt: skip
def test_a_field_of_another_kind_is_refused_before_it_is_in_line(fields):
    [name] = fields
    with pytest.raises(ValueError, match=f"{name} is .* needed"):
        Request("r", [1], **fields)


def test_a_deadline_in_the_past_says_on_which_clock():
    scheduler = Scheduler(BlockPool(4, 4), policy=EarliestDeadline())
    with pytest.raises(ValueError, match=r"passed 95\.000 s ago.*engine's clock"):
        scheduler.add(Request("r", [1], arrival=100, deadline=5))
