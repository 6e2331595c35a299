"""A simulated replica makes the steps that a real engine makes; strides change nothing."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.engine.blocks import BlockPool
from labkit.engine.continuous import ContinuousEngine
from labkit.engine.policies import make_policy
from labkit.engine.policies.preemption import Cheaper, Recompute, Swap
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.fleet.routing import LeastLoaded, RoundRobin
from labkit.measure.simulate.cost import CostModel
from labkit.measure.simulate.fairness import Service
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.pool import LeanPool
from labkit.measure.simulate.records import Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.requests import Arrival
from labkit.measure.simulate.watch import Watch

ROOFLINE = CostModel(
    fixed_s=0.001, weights_s=0.01, per_prompt_token_s=0.002, per_decode_s=0.003,
    per_context_token_s=1e-4, per_swapped_block_s=0.005, overlap=True,
)  # fmt: skip
SUM = CostModel(
    fixed_s=0.01, per_prompt_token_s=0.003, per_decode_s=0.001, per_context_token_s=3e-5,
    per_swapped_block_s=1e-4,
)  # fmt: skip
A_SECOND = CostModel(fixed_s=1.0)
HOW = {"recompute": Recompute, "swap": Swap, "auto": lambda: Cheaper(0.01, 1.0)}

arrivals = st.lists(
    st.builds(
        Arrival,
        time=st.integers(0, 40).map(lambda n: n / 20),
        num_prompt_tokens=st.integers(1, 40),
        num_output_tokens=st.integers(1, 30),
        priority=st.integers(-1, 1),
        tenant=st.sampled_from("ab"),
        deadline=st.one_of(st.none(), st.none(), st.integers(0, 60).map(lambda n: n / 10)),
    ),
    min_size=1,
    max_size=12,
).map(lambda found: sorted(found, key=lambda arrival: arrival.time))
limits = st.fixed_dictionaries(
    {
        "num_blocks": st.integers(18, 60),
        "max_num_seqs": st.integers(1, 6),
        "max_num_batched_tokens": st.integers(1, 40),
        "policy": st.sampled_from(["fcfs", "priority", "fair", "deadline"]),
        "how": st.sampled_from([*HOW]),
        "itl_target": st.sampled_from([None, None, 0.05]),
    }
)


class Noted(Records):
    """Keeps what became of each request."""

    def __init__(self):
        super().__init__()
        self.fates = {}

    def ended(self, request):
        super().ended(request)
        self.fates[request.request_id] = (
            request.started, request.first, request.last, request.longest_gap,
            request.finish_reason, request.num_preemptions, request.num_swaps,
            len(request.output_token_ids),
        )  # fmt: skip


def make_replica(limits, cost=SUM, strides=True, lean=True):
    pool = (LeanPool if lean else lambda n, size: BlockPool(n, size, False))(
        limits["num_blocks"], 4
    )
    how = limits["how"]
    scheduler = Scheduler(
        pool,
        limits["max_num_batched_tokens"],
        limits["max_num_seqs"],
        policy=make_policy(limits["policy"]),
        preemption=HOW[how](),
        host=None if how == "recompute" else LeanPool(20, 4),
        itl_target=limits["itl_target"],
    )
    return Replica(scheduler, cost, Watch(pool, cost, Service()), strides)


def outcome(arrivals, limits, count=2, **kind):
    """All that can be seen from outside; the mean use of blocks is an estimate in a stride."""
    replicas, records = [make_replica(limits, **kind) for _ in range(count)], Noted()
    Fleet(replicas, LeastLoaded(), records).run(arrivals)
    gaps = {key: sum(group.gaps.counts.values()) for key, group in records.groups.items()}
    seen = [
        (r.watch.num_steps, r.watch.busy_ticks, r.watch.peak_blocks, r.watch.service.total)
        for r in replicas
    ]
    assert all(r.scheduler.pool.num_used == 0 for r in replicas)
    return records.fates, gaps, seen, [r.watch.service.largest for r in replicas]


@settings(deadline=None, max_examples=100)
@given(arrivals, limits, st.sampled_from([SUM, ROOFLINE]))
def test_strides_change_no_time_and_no_schedule(arrivals, limits, cost):
    taken = outcome(arrivals, limits, cost=cost, strides=True)
    assert taken == outcome(arrivals, limits, cost=cost, strides=False)


@pytest.mark.parametrize("policy", ["fcfs", "priority", "fair", "deadline"])
def test_strides_change_nothing_when_too_much_arrives(policy):
    for seed in range(25):
        draw = Random(seed)
        limits = {
            "num_blocks": draw.randint(18, 60),
            "max_num_seqs": draw.randint(3, 9),
            "max_num_batched_tokens": draw.choice([8, 40, 100]),
            "policy": policy,
            "how": draw.choice([*HOW]),
            "itl_target": draw.choice([None, 0.05]),
        }
        arrivals = []
        for _ in range(25):
            time = arrivals[-1].time + draw.expovariate(20) if arrivals else 0.0
            deadline = time + draw.uniform(0.1, 8) if draw.random() < 0.5 else None
            lengths = draw.randint(1, 40), draw.randint(1, 30)
            who = draw.randint(-1, 1), draw.choice("aab")
            arrivals.append(Arrival(time, *lengths, *who, deadline))
        taken = outcome(arrivals, limits, 1, strides=True)
        assert taken == outcome(arrivals, limits, 1, strides=False), seed


@settings(deadline=None, max_examples=30)
@given(arrivals, limits)
def test_a_lean_pool_is_as_good_as_a_real_one(arrivals, limits):
    assert outcome(arrivals, limits) == outcome(arrivals, limits, lean=False)


@given(st.lists(st.integers(-8, 8), max_size=40))
def test_a_lean_pool_gives_out_the_same_blocks(changes):
    lean, real, held = LeanPool(20, 4), BlockPool(20, 4, prefix_caching=False), []
    for change in changes:
        if change > 0 and change <= real.num_free:
            held.append(real.allocate(change))
            assert lean.allocate(change) == held[-1]
        elif change < 0 and held:
            blocks = held.pop(change % len(held))
            real.free(blocks)
            lean.free(blocks)
        assert (lean.num_free, lean.num_used) == (real.num_free, real.num_used)


def test_strides_are_taken():
    replica = make_replica(
        {"num_blocks": 100, "max_num_seqs": 4, "max_num_batched_tokens": 64, "policy": "fcfs",
         "how": "recompute", "itl_target": None}
    )  # fmt: skip
    Fleet([replica], RoundRobin(), Records()).run([Arrival(0, 8, 100), Arrival(0, 8, 200)])
    assert replica.watch.num_steps == 200
    assert replica.watch.num_strides == 3  # the prompts, 99 steps of both, 100 of the longer one


@pytest.fixture(scope="module")
def tiny():
    from labkit.model.loading import load_decoder

    return load_decoder("tiny").model


def note_plans(scheduler, monkeypatch, into):
    """Each plan that computes something: request and tokens, in order, and its time."""
    plan = scheduler.plan

    def noted(now):
        made = plan(now)
        if made.chunks:
            chunks = [(c.request.request_id, c.start, c.num_tokens) for c in made.chunks.values()]
            into.append((now, chunks, [r.request_id for r in made.preempted]))
        return made

    monkeypatch.setattr(scheduler, "plan", noted)


def run_real(tiny, arrivals, limits, monkeypatch):
    """The real engine, a step a second, each request added before the step in which it is due."""
    steps, now = [], 0
    engine = ContinuousEngine(
        tiny, frozenset(), limits["num_blocks"], 4, prefix_caching=False, clock=lambda: float(now),
        policy=make_policy(limits["policy"]), max_num_seqs=limits["max_num_seqs"],
        max_num_batched_tokens=limits["max_num_batched_tokens"], preemption=limits["how"],
        num_host_blocks=20 if limits["how"] == "swap" else 0,
    )  # fmt: skip
    note_plans(engine.scheduler, monkeypatch, steps)
    waiting = list(enumerate(arrivals))
    while waiting or engine.has_unfinished():
        while waiting and waiting[0][1].time <= now:
            number, due = waiting.pop(0)
            request = Request(
                f"q{number}", [7] * due.num_prompt_tokens, due.num_output_tokens, ignore_eos=True,
                arrival=due.time, priority=due.priority, tenant=due.tenant,
            )  # fmt: skip
            engine.add(request)
        engine.step()
        now += 1
    return steps


@pytest.mark.parametrize("seed", range(12))
def test_the_schedule_is_that_of_a_real_engine(tiny, seed, monkeypatch):
    draw = Random(seed)
    limits = {
        "num_blocks": draw.randint(20, 40),
        "max_num_seqs": draw.randint(2, 6),
        "max_num_batched_tokens": draw.choice([8, 16, 64]),
        "policy": ["fcfs", "priority", "fair"][seed % 3],
        "how": draw.choice(["recompute", "swap"]),
        "itl_target": None,
    }
    arrivals = [
        Arrival(
            time, draw.randint(1, 40), draw.randint(1, 25), draw.randint(0, 2), draw.choice("ab")
        )
        for time in sorted(draw.randint(0, 30) for _ in range(10))
    ]  # fmt: skip
    real = run_real(tiny, arrivals, limits, monkeypatch)
    replica, made = make_replica(limits, A_SECOND, strides=False), []
    note_plans(replica.scheduler, monkeypatch, made)
    Fleet([replica], RoundRobin(), Records()).run(arrivals)
    assert made == real
    assert max(len(chunks) for _, chunks, _ in made) > 1
