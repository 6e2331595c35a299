"""What a configuration costs on a workload, and which promises it keeps."""

from dataclasses import dataclass
from math import ceil
from statistics import fmean

from labkit.fleet.pools import Pools, Spill
from labkit.fleet.routing import ROUTERS, Router
from labkit.measure.capstone.configuration import BLOCK_SIZE, MODEL, Configuration
from labkit.measure.capstone.workloads import TrafficClass, Workload
from labkit.measure.cost import cost_per_million, price_of
from labkit.measure.simulate import cards
from labkit.measure.simulate.building import make_scheduler
from labkit.measure.simulate.cost import seconds as seconds_of
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.records import Group, Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.report import union
from labkit.measure.simulate.slo import good_tokens, num_met
from labkit.measure.simulate.watch import Watch
from labkit.measure.slo import SLO


@dataclass(frozen=True)
class ClassScore:
    """How one class fared. Latencies are seconds, at the percentile that its promise is about;
    None when so few were answered that this percentile has none."""

    name: str
    num_requests: int
    met: float  # the share of its requests that met its SLO
    share: float  # the share that must
    num_failed: int  # refused, failed, or ended by their deadline: they never meet it
    missed: dict[str, float]  # each limit → the share of the requests that were answered above it
    ttft: float | None
    tpot: float | None
    e2e: float | None

    @property
    def is_kept(self) -> bool:
        return self.met >= self.share


@dataclass(frozen=True)
class Score:
    """What came of a configuration. Those that keep every promise go first, by their cost."""

    configuration: Configuration
    workload: str
    classes: tuple[ClassScore, ...]
    cost: float  # US dollars for a million good tokens; infinite when none is good
    good_tokens: int
    price_per_hour: float  # of all cards
    seconds: float
    busy: float  # mean over the replicas: share of the run in which a step was computed
    kv_peak: float  # the most over the replicas: share of the blocks in use
    num_preemptions: int

    @property
    def is_valid(self) -> bool:
        return all(one.is_kept for one in self.classes)

    @property
    def rank(self) -> tuple[bool, float]:
        """Smaller is better."""
        return not self.is_valid, self.cost

    @property
    def met(self) -> dict[str, float]:
        """Class → the share of its requests that met its SLO."""
        return {one.name: one.met for one in self.classes}


def score(
    configuration: Configuration, workload: Workload, price_per_hour: float | None = None
) -> Score:
    """Serves the workload on a virtual clock with the configuration, and settles the account.

    `price_per_hour` is of one card; its list price unless told. For how long all cards are rented,
    `rented` says. The same input gives the same score everywhere.
    """
    fleet = make_fleet(configuration)
    fleet.run(workload.arrivals)
    groups = {kind.name: group_of(fleet.records, kind.name) for kind in workload.classes}
    price = price_of(configuration.card).per_hour if price_per_hour is None else price_per_hour
    price *= configuration.replicas
    seconds = rented(fleet, workload)
    good = sum(good_tokens(kind.slo, groups[kind.name]) for kind in workload.classes)
    watches = [replica.watch for replica in fleet.replicas]
    return Score(
        configuration, workload.name,
        tuple(class_score(kind, groups[kind.name]) for kind in workload.classes),
        cost_per_million(price, good, seconds), good, price, seconds,
        busy=fmean(busy(fleet)),
        kv_peak=max(watch.peak_blocks for watch in watches) / configuration.blocks,
        num_preemptions=sum(g.num_preemptions for g in fleet.records.groups.values()),
    )  # fmt: skip


def rented(fleet: Fleet, workload: Workload) -> float:
    """Seconds from the start until nobody waits for a first token any more, and as long as
    requests arrive at least.

    In a service that goes on the next ones would come then, while answers are finished; what was
    put off has to be paid for.
    """
    return max(seconds_of(fleet.records.last_first), workload.seconds)


def busy(fleet: Fleet) -> list[float]:
    """Of each replica, the share of the run in which it computed."""
    watches = [replica.watch for replica in fleet.replicas]
    last = max(watch.last_tick for watch in watches) or 1
    return [watch.busy_ticks / last for watch in watches]


def make_fleet(chosen: Configuration) -> Fleet:
    """New replicas behind a new router."""
    cost = cards.for_card(chosen.card, **MODEL, block_size=BLOCK_SIZE)
    replicas = []
    for _ in range(chosen.replicas):
        scheduler = make_scheduler(
            cost, chosen.blocks, chosen.max_num_batched_tokens, chosen.max_num_seqs,
            chosen.policy, chosen.preemption, block_size=BLOCK_SIZE,
        )  # fmt: skip
        replicas.append(Replica(scheduler, cost, Watch(scheduler.pool, cost)))
    return Fleet(replicas, make_router(chosen), Records(), num_dedicated=chosen.dedicated)


def make_router(chosen: Configuration) -> Router:
    if chosen.router == "pools":
        return Pools(spill=Spill(chosen.urgent_above, chosen.lend_below))
    return ROUTERS[chosen.router](seed=0)


def group_of(records: Records, tenant: str) -> Group:
    return union(group for group in records.groups.values() if group.tenant == tenant)


def class_score(kind: TrafficClass, group: Group) -> ClassScore:
    failed = group.num_late + group.num_failed
    answered = len(group.e2e)
    count = answered + failed
    limits = {name: getattr(kind.slo, name) for name in ("ttft", "tpot", "e2e")}
    missed = {
        name: 1 - num_met(SLO(**{name: limit}), group) / answered
        for name, limit in limits.items()
        if limit is not None and answered
    }
    # One that failed is later than any that was answered.
    at = {name: ranked(getattr(group, name), kind.share, failed) for name in limits}
    met = num_met(kind.slo, group) / count if count else 1.0
    return ClassScore(kind.name, count, met, kind.share, failed, missed, **at)


def ranked(values, share: float, num_failed: int) -> float | None:
    """The value that a share of all requests don't exceed, by nearest rank; NaN is left out."""
    ordered = sorted(value for value in values if value == value)
    rank = ceil((len(ordered) + num_failed) * share)
    return ordered[rank - 1] if 0 < rank <= len(ordered) else None
