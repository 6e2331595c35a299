"""`simulate --capacity`: the highest rate at which enough requests meet the SLO."""

import math
from argparse import Namespace
from collections.abc import Callable, Iterable
from itertools import islice

from labkit.measure.bench.drive import percentile
from labkit.measure.bench.report import Column, Report, milliseconds, percent
from labkit.measure.capacity import Capacity, capacity
from labkit.measure.cost import cost_per_million
from labkit.measure.simulate import traces
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.options import HIGHEST_RATE, LOWEST_RATE, TRIAL_SECONDS
from labkit.measure.simulate.report import union
from labkit.measure.simulate.requests import Arrival, at_rate
from labkit.measure.simulate.slo import good_tokens, num_met
from labkit.measure.simulate.synthetic import synthetic
from labkit.measure.slo import SLO
from labkit.measure.slo_options import share_of

LEAST_REQUESTS = 500  # of a trial: 99% of fewer is a matter of chance
TRIALS = [
    Column("rate", "requests/s", "{:,.3f}"),
    Column("requests", "requests", "{:,}"),
    Column("seconds", "seconds", "{:,.0f}"),
    Column("slo_met", "SLO met", percent),
    Column("is_met", "", lambda is_met: "yes" if is_met else "no"),
    Column("goodput", "goodput/s", "{:,.2f}"),
    Column("ttft_p99_s", "TTFT p99 ms", milliseconds),
    Column("tpot_p99_s", "TPOT p99", milliseconds),
    Column("cost", "USD / million good tokens", "{:,.3f}"),
]


def run(
    chosen: Namespace, out: Report, slo: SLO, price: float | None,
    make_fleet: Callable[[], Fleet], tell: Callable[[str], None],
) -> Capacity:  # fmt: skip
    """Searches, and prints every trial and what came of it."""
    rows, share = [], share_of(chosen)

    def meets(rate: float) -> bool:
        tell(f"trial {len(rows) + 1}: {rate:.3f} requests/s")
        fleet = make_fleet()
        fleet.run(arrivals_at(chosen, rate))
        rows.append(row(fleet, rate, slo, share, price))
        return rows[-1]["is_met"]

    found = capacity(meets, *(chosen.rates or (LOWEST_RATE, HIGHEST_RATE)))
    out.say()
    out.table("trials", TRIALS, rows)
    tell_capacity(out, found, share, slo, chosen.replicas)
    return found


def arrivals_at(chosen: Namespace, rate: float) -> Iterable[Arrival]:
    """The requests of one trial. Those of a trace are stretched, synthetic ones are as many as
    the time takes."""
    if chosen.trace:
        return at_rate(list(islice(traces.read(chosen.trace), chosen.requests)), rate)
    seconds = chosen.trial_seconds or TRIAL_SECONDS
    count = chosen.requests or max(LEAST_REQUESTS, math.ceil(rate * seconds))
    return synthetic(chosen.synthetic, count, rate, chosen.seed)


def row(fleet: Fleet, rate: float, slo: SLO, share: float, price: float | None) -> dict:
    """One trial. A failed or late request misses the SLO like a slow one."""
    whole, seconds = union(fleet.records.groups.values()), fleet.records.seconds
    count = len(whole.e2e) + whole.num_late + whole.num_failed
    met, good = num_met(slo, whole), good_tokens(slo, whole)
    cost = None
    if price is not None and good:
        cost = cost_per_million(price * len(fleet.replicas), good, seconds)
    return {
        "rate": rate, "requests": count, "seconds": seconds, "slo_met": met / count,
        "is_met": met >= share * count, "goodput": met / seconds if seconds else None,
        "ttft_p99_s": percentile(whole.ttft, 99), "cost": cost,
        "tpot_p99_s": percentile([value for value in whole.tpot if not math.isnan(value)], 99),
    }  # fmt: skip


def tell_capacity(out: Report, found: Capacity, share: float, slo: SLO, replicas: int) -> None:
    out.keep(capacity={"rate": found.rate, "fails_at": found.fails_at, "share": share})
    limits = f"{100 * share:g}% of the requests meet {slo}"
    if not found.rate:
        out.note(f"capacity: none; at {found.fails_at:g} requests/s it isn't so that {limits}")
    elif found.fails_at is None:
        out.note(f"capacity: {found.rate:g} requests/s or more; look further up with --rates")
    else:
        each = f" ({found.rate / replicas:.3g} for each of {replicas} replicas)"
        out.note(
            f"capacity: {found.rate:.3g} requests/s{each}: {limits}; at {found.fails_at:.3g} they "
            "don't. Another seed draws other requests, and finds a rate near it"
        )


def tell_price(out: Report, price: float | None, told_by: str) -> None:
    if price is None:
        out.note("price: unknown for this machine; give --price for a cost")
    else:
        out.note(f"price of a replica: {told_by}")
