"""A designed workload, served by the simulator: the real scheduler, a modelled card, no clock.

Two classes share one replica: chat, which is urgent (priority 0) and short, and batch (priority 1).
"""

import math
import random
from dataclasses import dataclass, field

from labkit.engine.policies import POLICIES, make_policy
from labkit.engine.scheduler import Scheduler
from labkit.fleet.routing import RoundRobin
from labkit.measure.simulate import cards
from labkit.measure.simulate.cost import CostModel, seconds
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.pool import LeanPool
from labkit.measure.simulate.records import Group, Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.requests import Arrival
from labkit.measure.simulate.slo import num_met
from labkit.measure.simulate.timeline import Timeline
from labkit.measure.simulate.watch import Watch
from labkit.measure.slo import SLO

CARD, BLOCK_SIZE, MAX_NUM_SEQS = "L4", 16, 64
MODEL = {"num_params": 8e9, "kv_bytes_per_token": 131_072.0, "block_size": BLOCK_SIZE}
LIMITS = {"chat": SLO(ttft=1.0, itl=0.2), "batch": SLO(e2e=60.0)}
NUM_REQUESTS = 240
CHAT, BATCH = (0, "chat"), (1, "batch")  # (priority, tenant)
SPREAD = 0.5  # of lengths, as the standard deviation of their logarithm


@dataclass(frozen=True)
class Design:
    """What arrives and what serves it. Lengths are means; chat has a quarter of the prompt and
    half of the output of batch, so that one urgent request is a light one."""

    rate: float = 4.0  # requests per second
    prompt_tokens: int = 800  # of batch
    output_tokens: int = 160  # of batch
    chat_share: float = 0.5
    max_num_batched_tokens: int = 512
    num_blocks: int = 800
    policy: str = "priority"

    def __post_init__(self):
        if self.policy not in POLICIES:
            raise ValueError(
                f"policy {self.policy!r} is not known; accepted are {', '.join(POLICIES)}"
            )


@dataclass
class Outcome:
    """What came of a design: a group of numbers for each class, and what the replica did.

    `points` are (seconds, running, waiting, blocks in use).
    """

    design: Design
    groups: dict[str, Group] = field(default_factory=dict)
    points: list[tuple[float, int, int, int]] = field(default_factory=list)
    seconds: float = 0.0  # from the first arrival to the last token
    last_arrival: float = 0.0
    busy: float = 0.0  # share of the time in which a step was computed
    full_steps: float = 0.0  # of the busy time: in steps that used up their token budget
    full_blocks: float = 0.0  # with 95% of the blocks in use or more
    full_slots: float = 0.0  # with as many requests running as may
    num_failed: int = 0
    about: str = ""

    @property
    def limits(self) -> dict[str, SLO]:
        return LIMITS

    def met(self, name: str) -> int:
        """How many requests of a class met its SLO."""
        return num_met(LIMITS[name], self.groups[name])

    def count(self, name: str) -> int:
        """How many requests of a class there were."""
        group = self.groups[name]
        return len(group.e2e) + group.num_late + group.num_failed


class Budgets(Watch):
    """Also counts for how long steps used up their budget, the pool was full, or the slots."""

    def __init__(self, pool, cost, timeline):
        super().__init__(pool, cost, timeline=timeline)
        self.full_step_ticks = self.full_pool_ticks = self.full_slot_ticks = 0

    def computed(self, replica, now: int, num_steps: int) -> None:
        super().computed(replica, now, num_steps)
        duration, running = now - replica.began, len(replica.scheduler.running)
        if replica.stride is None and replica.plan.budget == 0:
            self.full_step_ticks += duration
        if self.pool.num_used >= 0.95 * self.pool.num_blocks:
            self.full_pool_ticks += duration
        if running >= MAX_NUM_SEQS:
            self.full_slot_ticks += duration


def cost_model() -> CostModel:
    return cards.for_card(CARD, **MODEL)


def most_blocks() -> int:
    """How many blocks fit the card beside the weights."""
    return cards.blocks_on(CARD, **MODEL)


def arrivals_of(design: Design, count: int = NUM_REQUESTS, seed: int = 0) -> list[Arrival]:
    """`count` requests of both classes: gaps exponential, lengths log-normal around their means.

    The same seed gives the same draws whatever the design, so that one slider changes one thing.
    """
    draw, time, made = random.Random(seed), 0.0, []
    for number in range(count):
        gap, kind = draw.expovariate(1.0), draw.random()
        prompt, output = draw.gauss(0, SPREAD), draw.gauss(0, SPREAD)
        time += gap / design.rate
        chat = kind < design.chat_share
        priority, tenant = CHAT if chat else BATCH
        mean_prompt = design.prompt_tokens / (4 if chat else 1)
        mean_output = design.output_tokens / (2 if chat else 1)
        made.append(
            Arrival(
                time,
                around(mean_prompt, prompt),
                around(mean_output, output),
                priority,
                tenant,
                time + (10.0 if chat else 120.0) if design.policy == "deadline" else None,
                request_id=f"{tenant}-{number}",
            )
        )
    return made


def around(mean: float, normal: float) -> int:
    """A length out of a standard normal draw; `mean` is the mean of all."""
    return max(1, round(mean * math.exp(normal - SPREAD**2 / 2)))


def simulate(design: Design, count: int = NUM_REQUESTS, seed: int = 0) -> Outcome:
    """Serves the designed requests on one modelled replica. Deterministic; well below a second
    unless the design is extreme."""
    cost, pool = cost_model(), LeanPool(design.num_blocks, BLOCK_SIZE)
    timeline = Timeline(by_request=False)
    watch = Budgets(pool, cost, timeline)
    policy = make_policy(design.policy)
    scheduler = Scheduler(pool, design.max_num_batched_tokens, MAX_NUM_SEQS, policy=policy)
    records = Records()
    arrivals = arrivals_of(design, count, seed)
    Fleet([Replica(scheduler, cost, watch)], RoundRobin(seed), records).run(arrivals)
    outcome = Outcome(design, points=timeline.points, last_arrival=arrivals[-1].time)
    for priority, name in (CHAT, BATCH):
        outcome.groups[name] = records.groups.get((priority, name), Group(priority, name))
    outcome.seconds = records.seconds
    outcome.busy = seconds(watch.busy_ticks) / records.seconds if records.seconds else 0.0
    busy_ticks = watch.busy_ticks or 1
    outcome.full_steps = watch.full_step_ticks / busy_ticks
    outcome.full_blocks = watch.full_pool_ticks / busy_ticks
    outcome.full_slots = watch.full_slot_ticks / busy_ticks
    outcome.num_failed = sum(group.num_failed for group in records.groups.values())
    outcome.about = cost.about
    return outcome
