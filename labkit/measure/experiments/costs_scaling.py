"""A fleet whose number of replicas follows the load, on the virtual clock of the simulator.

Everything here is modelled: an 8-billion-parameter model on L4 cards, from their maker's figures.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from labkit.engine.scheduler import Scheduler
from labkit.fleet.routing import LeastLoaded
from labkit.fleet.scaling import Limits, Load, wanted_replicas
from labkit.measure.cost import cost_per_million, price_of
from labkit.measure.simulate import cards
from labkit.measure.simulate.cost import ticks
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.options import LLAMA_8B
from labkit.measure.simulate.pool import LeanPool
from labkit.measure.simulate.records import Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.requests import Arrival
from labkit.measure.simulate.slo import good_tokens, num_met
from labkit.measure.simulate.synthetic import synthetic
from labkit.measure.simulate.watch import Watch
from labkit.measure.slo import PRESETS

CARD, BLOCK_SIZE, SLOTS, BUDGET = "L4", 16, 64, 512
DAY = ((120.0, 0.5), (240.0, 4.0), (720.0, 0.5))  # (seconds, requests a second), one by one
SLO = PRESETS["llama3.1-8b"].slo
LOOKS_EVERY_S = 5.0


@dataclass(frozen=True)
class Moment:
    """What the autoscaler saw and did. Replicas: those that serve, are being started, or only end
    what they have."""

    time: float
    serving: int
    starting: int
    ending: int
    num_requests: int
    wanted: int

    @property
    def paid(self) -> int:
        return self.serving + self.starting + self.ending


@dataclass
class Scaled:
    """One run; `cost` is in US dollars for a million good tokens, at the card's list price."""

    moments: list[Moment] = field(default_factory=list)
    attainment: float = 0.0  # share of the requests that met the SLO
    replica_seconds: float = 0.0  # that were paid for
    cost: float = 0.0


class ScaledFleet(Fleet):
    """Looks at its load every `LOOKS_EVERY_S`, and does what `wanted` says.

    A new replica serves after `delay_s`; before one is taken away, fewer must have been wanted for
    `patience_s`. It takes no more requests then, and is paid for until it has ended the last.
    """

    def __init__(self, replicas, wanted: Callable, limits: Limits, delay_s: float,
                 patience_s: float):  # fmt: skip
        super().__init__(replicas, LeastLoaded(), Records())
        self.wanted, self.limits = wanted, limits
        self.delay_s, self.patience_s = delay_s, patience_s
        self.ready_at: dict[int, float] = {}  # of replicas that are being started
        self.moments: list[Moment] = []
        self.next_look = self.fewer_since = 0.0
        for view in self.views[limits.min_replicas :]:
            view.healthy = False

    @property
    def serving(self) -> list[int]:
        return [i for i, view in enumerate(self.views) if view.healthy]

    def _run_until(self, end: int | None) -> None:
        while end is not None and ticks(self.next_look) < end:
            super()._run_until(ticks(self.next_look))
            self.look(self.next_look)
            self.next_look += LOOKS_EVERY_S
        super()._run_until(end)

    def look(self, now: float) -> None:
        for index in [i for i, ready in self.ready_at.items() if ready <= now]:
            del self.ready_at[index]
            self.views[index].healthy = True
        load = self.load()
        wanted = self.wanted(load, self.limits)
        if wanted >= load.num_replicas:
            self.fewer_since = now
        for _ in range(wanted - load.num_replicas):
            self.start_one(now)
        if now - self.fewer_since >= self.patience_s:
            for _ in range(load.num_replicas - wanted):
                self.end_one()
        self.note(now, load.num_requests, wanted)

    def load(self) -> Load:
        pools = [self.replicas[i].scheduler.pool for i in self.serving]
        used = sum(pool.num_used for pool in pools) / sum(pool.num_blocks for pool in pools)
        under_way = sum(view.num_requests for view in self.views)
        return Load(len(pools) + len(self.ready_at), under_way, used)

    def start_one(self, now: float) -> None:
        """One that is about to end serves again at once; else a new one is started."""
        off = [i for i, v in enumerate(self.views) if not v.healthy and i not in self.ready_at]
        ending = [i for i in off if self.views[i].num_requests]
        if ending:
            self.views[ending[0]].healthy = True
        elif off:
            self.ready_at[off[0]] = now + self.delay_s

    def end_one(self) -> None:
        """One that isn't ready yet, else the one with the least to do."""
        if self.ready_at:
            self.ready_at.popitem()
        else:
            least = min(self.serving, key=lambda index: self.views[index].load)
            self.views[least].healthy = False

    def note(self, now: float, num_requests: int, wanted: int) -> None:
        ending = sum(not view.healthy and view.num_requests > 0 for view in self.views)
        self.moments.append(
            Moment(now, len(self.serving), len(self.ready_at), ending, num_requests, wanted)
        )


def day(seed: int = 0) -> Iterator[Arrival]:
    """A quiet stretch, a rush, and quiet again: lengths like those of Azure's conversations."""
    begin, number = 0.0, 0
    for length, rate in DAY:
        for one in synthetic("conv", round(length * rate), rate, seed + number):
            if one.time < length:
                yield one._replace(time=begin + one.time, request_id=f"q{number}")
                number += 1
        begin += length


def follow(
    wanted: Callable = wanted_replicas,
    limits: Limits = Limits(max_replicas=5, requests_each=16, kv_low=0.4),  # noqa: B008
    delay_s: float = 60.0,
    patience_s: float = 60.0,
) -> Scaled:
    """Serves the day with as many replicas as `wanted(load, limits)` says."""
    replicas = [one_replica() for _ in range(limits.max_replicas)]
    fleet = ScaledFleet(replicas, wanted, limits, delay_s, patience_s)
    fleet.run(day())
    [group] = fleet.records.groups.values()
    length = sum(one for one, _ in DAY)
    paid = sum(moment.paid for moment in fleet.moments) * LOOKS_EVERY_S
    good = good_tokens(SLO, group)
    cost = cost_per_million(price_of(CARD).per_hour * paid / length, good, length)
    return Scaled(fleet.moments, num_met(SLO, group) / len(group.ttft), paid, cost)


def one_replica() -> Replica:
    size = {"num_params": LLAMA_8B["model_params"], "block_size": BLOCK_SIZE,
            "kv_bytes_per_token": LLAMA_8B["kv_bytes_per_token"]}  # fmt: skip
    pool = LeanPool(cards.blocks_on(CARD, **size), BLOCK_SIZE)
    cost = cards.for_card(CARD, **size)
    return Replica(Scheduler(pool, BUDGET, SLOTS), cost, Watch(pool, cost))
