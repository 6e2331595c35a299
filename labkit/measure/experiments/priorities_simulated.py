"""The same three classes on a card, by the thousand: the real scheduler, modelled steps.

Everything here is modelled: an 8-billion-parameter model on one H100, from its maker's figures.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labkit.engine.policies import make_policy
from labkit.engine.scheduler import Scheduler
from labkit.fleet.routing import RoundRobin
from labkit.measure.bench.drive import percentile
from labkit.measure.simulate import cards
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.options import LLAMA_8B
from labkit.measure.simulate.pool import LeanPool
from labkit.measure.simulate.records import Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.requests import Arrival
from labkit.measure.simulate.synthetic import synthetic
from labkit.measure.simulate.watch import Watch

CLASSES = ("chat", "batch", "chat", "agent", "batch")  # in turn; priorities 0, 2, 1
PRIORITIES = {"chat": 0, "agent": 1, "batch": 2}
SLOTS, BUDGET, BLOCK_SIZE = 64, 2048, 16


@dataclass(frozen=True)
class Point:
    """One policy at one load. Seconds; `goodput` counts chat within `slo_s`, and all others."""

    policy: str
    rate: float  # requests a second
    chat_p50_s: float
    chat_p99_s: float
    chat_on_time: float  # a share
    batch_e2e_s: float  # the mean
    goodput: float
    num_preemptions: int


def arrivals(num_requests: int, rate: float, seed: int = 0) -> Iterator[Arrival]:
    """Lengths and gaps like those of Azure's conversation trace; three classes in turn."""
    for i, one in enumerate(synthetic("conv", num_requests, rate, seed)):
        name = CLASSES[i % len(CLASSES)]
        yield one._replace(priority=PRIORITIES[name], tenant=name)


def simulate(policy: str, rate: float, num_requests: int = 2000, slo_s: float = 1.0) -> Point:
    size = {
        "num_params": LLAMA_8B["model_params"],
        "kv_bytes_per_token": LLAMA_8B["kv_bytes_per_token"],
        "block_size": BLOCK_SIZE,
    }
    cost, num_blocks = cards.for_card("H100", **size), cards.blocks_on("H100", **size)
    scheduler = Scheduler(LeanPool(num_blocks, BLOCK_SIZE), BUDGET, SLOTS,
                          policy=make_policy(policy))  # fmt: skip
    replica, records = Replica(scheduler, cost, Watch(scheduler.pool, cost)), Records()
    Fleet([replica], RoundRobin(), records).run(arrivals(num_requests, rate))
    groups = {group.tenant: group for group in records.groups.values()}
    chat, batch = groups["chat"], groups["batch"]
    on_time = sum(ttft <= slo_s for ttft in chat.ttft)
    others = sum(len(group.e2e) for group in groups.values()) - len(chat.e2e)
    return Point(
        policy,
        rate,
        percentile(chat.ttft, 50),
        percentile(chat.ttft, 99),
        on_time / len(chat.ttft),
        sum(batch.e2e) / len(batch.e2e),
        (on_time + others) / records.seconds,
        sum(group.num_preemptions for group in groups.values()),
    )


def sweep(policies: Sequence[str], rates: Sequence[float], num_requests: int = 2000):
    """A `Point` for each policy at each rate."""
    return [simulate(policy, rate, num_requests) for policy in policies for rate in rates]
