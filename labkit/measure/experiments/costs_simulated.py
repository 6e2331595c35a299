"""What good tokens cost over the load and over the budget of a step, and pools: for notebook 10.

Everything here is modelled: an 8-billion-parameter model on H100 cards, from their maker's
figures, at a list price.
"""

from collections.abc import Callable
from dataclasses import dataclass

from labkit.engine.scheduler import Scheduler
from labkit.fleet.routing import LeastLoaded, Router
from labkit.measure.capstone.configuration import Configuration
from labkit.measure.capstone.scoring import busy, class_score, group_of, make_fleet, rented
from labkit.measure.capstone.workloads import Workload
from labkit.measure.cost import cost_per_million, price_of
from labkit.measure.simulate import cards
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.options import LLAMA_8B
from labkit.measure.simulate.pool import LeanPool
from labkit.measure.simulate.records import Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.slo import good_tokens, num_met
from labkit.measure.simulate.synthetic import synthetic
from labkit.measure.simulate.watch import Watch
from labkit.measure.slo import PRESETS, SLO

CARD, BLOCK_SIZE, SLOTS, BUDGET = "H100", 16, 256, 1024
INTERACTIVE = PRESETS["llama3.1-8b-interactive"].slo


@dataclass(frozen=True)
class Priced:
    """One card under one load. Costs are in US dollars for a million output tokens: of all that
    came out, and of those that came within the SLO."""

    rate: float  # requests a second
    budget: int  # tokens in a step, at most
    tokens_per_s: float
    good_tokens_per_s: float
    attainment: float  # share of the requests that met the SLO
    cost: float
    good_cost: float


def priced(
    rate: float,
    budget: int = BUDGET,
    slo: SLO = INTERACTIVE,
    num_requests: int = 500,
    price: Callable[[float, int, float], float] = cost_per_million,
    per_hour: float | None = None,
    card: str = CARD,
) -> Priced:
    """Serves `num_requests`, with lengths and gaps like those of Azure's conversation trace.

    `price` is `cost_per_million`, or a learner's own; `per_hour` the card's list price unless told.
    """
    fleet = Fleet([one_replica(card, budget)], LeastLoaded(), Records())
    fleet.run(synthetic("conv", num_requests, rate))
    [group] = fleet.records.groups.values()
    seconds, good = fleet.records.seconds, good_tokens(slo, group)
    made = fleet.records.num_output_tokens
    per_hour = price_of(card).per_hour if per_hour is None else per_hour
    return Priced(
        rate, budget, made / seconds, good / seconds, num_met(slo, group) / num_requests,
        price(per_hour, made, seconds), price(per_hour, good, seconds),
    )  # fmt: skip


def one_replica(card: str, budget: int) -> Replica:
    size = {"num_params": LLAMA_8B["model_params"], "block_size": BLOCK_SIZE,
            "kv_bytes_per_token": LLAMA_8B["kv_bytes_per_token"]}  # fmt: skip
    cost, pool = cards.for_card(card, **size), LeanPool(cards.blocks_on(card, **size), BLOCK_SIZE)
    return Replica(Scheduler(pool, budget, SLOTS), cost, Watch(pool, cost))


@dataclass(frozen=True)
class Pooled:
    """A fleet on the capstone's three classes: the share of each that met its SLO, and the cost
    of a million good tokens."""

    name: str
    met: dict[str, float]
    is_kept: dict[str, bool]  # whether that is the share that was promised
    busy: tuple[float, ...]  # of each replica: the share of the time in which it computed
    cost: float


def pooled(
    name: str, configuration: Configuration, workload: Workload, router: Router | None = None
) -> Pooled:
    """Serves the workload; `router` stands in for the one of the configuration."""
    fleet = make_fleet(configuration)
    fleet.router = router or fleet.router
    fleet.run(workload.arrivals)
    groups = {kind.name: group_of(fleet.records, kind.name) for kind in workload.classes}
    scores = [class_score(kind, groups[kind.name]) for kind in workload.classes]
    seconds = rented(fleet, workload)
    per_hour = price_of(configuration.card).per_hour * configuration.replicas
    good = sum(good_tokens(kind.slo, groups[kind.name]) for kind in workload.classes)
    return Pooled(
        name,
        {one.name: one.met for one in scores},
        {one.name: one.is_kept for one in scores},
        tuple(busy(fleet)),
        cost_per_million(per_hour, good, seconds),
    )
