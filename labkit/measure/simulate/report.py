"""What came of a simulation, as tables: latency by class and tenant, goodput, KV use, fairness."""

import math
import platform
from collections.abc import Iterable, Sequence

from labkit import machine
from labkit.measure.bench.drive import percentile
from labkit.measure.bench.report import Column, Report, cpu_name, percent
from labkit.measure.cost import cost_per_million
from labkit.measure.simulate import fairness
from labkit.measure.simulate.cost import CostModel
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.records import Group, Records
from labkit.measure.simulate.slo import good_tokens, num_met
from labkit.measure.slo import SLO

FORMULAS = [
    "queue = begin of the first step - arrival; TTFT = first token - arrival",
    "ITL = gap between two tokens of a request (counted in buckets 1% wide)",
    "TPOT = (E2E - TTFT) / (tokens - 1); E2E = last token - arrival; percentiles by nearest rank",
    "goodput = requests that meet every SLO / (last token - first arrival)",
    "latencies are of requests that ended with an answer; late and failed ones miss the SLO",
]
PERCENTS = (50, 90, 99)
MOST_TENANTS = 8  # printed; the JSON has all


def milliseconds(value: float) -> str:
    return f"{1000 * value:,.1f}"


COUNTS = [
    Column("who", "who"),
    Column("num_requests", "requests", "{:,}"),
    Column("num_late", "late", "{:,}"),
    Column("num_failed", "failed", "{:,}"),
    Column("num_recomputed", "preempted: recompute", "{:,}"),
    Column("num_swapped", "swap", "{:,}"),
    Column("slo_met", "SLO met", percent),
    Column("goodput", "goodput/s", "{:,.2f}"),
]
LATENCY = [
    Column("who", "who"),
    Column("what", "ms"),
    *(Column(f"p{p}_s", f"p{p}", milliseconds) for p in PERCENTS),
]
REPLICAS = [
    Column("what", "over the replicas"),
    *(Column(name, name, percent) for name in ("least", "mean", "most")),
]


def header(report: Report, cost: CostModel, facts: dict[str, str], seed: int, slo: SLO) -> None:
    """The machine, the cost model and its label, and what is simulated."""
    cores = machine.cores()
    about = {"cpu": cpu_name(), "cores": cores, "python": platform.python_version()}
    report.keep(machine=about, cost=cost.to_json(), seed=seed, **facts, formulas=FORMULAS)
    report.say(f"machine   {about['cpu']}, {cores:g} cores, Python {about['python']}")
    report.say(f"cost      {cost.source}: {cost.about or 'of no stated origin'}")
    for name, value in {"seed": seed, **facts, "SLO": slo}.items():
        report.say(f"{name:9} {value}")
    for i, formula in enumerate(FORMULAS):
        report.say(f"{'' if i else 'formula':9} {formula}")
    report.say()


def union(groups: Iterable[Group]) -> Group:
    """All requests of some groups as one."""
    whole = Group(0, "")
    for group in groups:
        for name in ("queue", "ttft", "tpot", "longest_gap", "e2e", "num_tokens"):
            getattr(whole, name).extend(getattr(group, name))
        for name in ("num_late", "num_failed", "num_preemptions", "num_swaps"):
            setattr(whole, name, getattr(whole, name) + getattr(group, name))
        whole.gaps.merge(group.gaps)
    return whole


def parts(records: Records) -> dict[str, Group]:
    """All requests; each class, where there are two or more; each tenant likewise."""
    groups = records.groups.values()
    found = {"all": union(groups)}
    for name, values in (
        ("priority", sorted({group.priority for group in groups})),
        ("tenant", sorted({group.tenant for group in groups})),
    ):
        if len(values) > 1:
            for value in values:
                chosen = union(group for group in groups if getattr(group, name) == value)
                found[f"{name} {value}" if value != "" else f"{name} -"] = chosen
    return found


def count_row(who: str, group: Group, slo: SLO, wall: float) -> dict:
    num_requests = len(group.e2e) + group.num_late + group.num_failed
    met = num_met(slo, group) if slo else None
    return {
        "who": who,
        "num_requests": num_requests,
        "num_late": group.num_late,
        "num_failed": group.num_failed,
        "num_recomputed": group.num_preemptions - group.num_swaps,
        "num_swapped": group.num_swaps,
        "slo_met": met / num_requests if slo else None,
        "goodput": met / wall if slo and wall else None,
    }


def latency_rows(who: str, group: Group) -> list[dict]:
    tpot = [value for value in group.tpot if not math.isnan(value)]
    columns = {"queue": group.queue, "TTFT": group.ttft, "TPOT": tpot, "E2E": group.e2e}
    rows = []
    for what, values in columns.items():
        ordered = sorted(values)
        row = {f"p{p}_s": percentile(ordered, p) for p in PERCENTS}
        rows.append({"who": who, "what": what, **row})
    itl = {f"p{p}_s": group.gaps.percentile(p) for p in PERCENTS}
    rows.insert(2, {"who": who, "what": "ITL", **itl})
    return rows


def replica_rows(fleet: Fleet, end: int) -> list[dict]:
    """Shares over all replicas: `end` is the length of the run in ticks."""
    watches = [replica.watch for replica in fleet.replicas]
    shares = {
        "KV cache in use, mean": [w.block_ticks / (w.pool.num_blocks * end) for w in watches],
        "KV cache in use, peak": [w.peak_blocks / w.pool.num_blocks for w in watches],
        "time spent computing": [w.busy_ticks / end for w in watches],
    }
    return [
        {"what": what, "least": min(v), "mean": sum(v) / len(v), "most": max(v)}
        for what, v in shares.items()
    ]


def printed(names: Sequence[str]) -> set[str]:
    tenants = [name for name in names if name.startswith("tenant ")]
    return {*names} - {*tenants[MOST_TENANTS:]}


def tell(report: Report, fleet: Fleet, slo: SLO) -> None:
    """Prints and keeps all of it."""
    records, wall = fleet.records, fleet.records.seconds
    found = parts(records)
    shown = printed(list(found))
    counts = [count_row(who, group, slo, wall) for who, group in found.items()]
    latency = [row for who, group in found.items() for row in latency_rows(who, group)]
    for name, columns, rows in (("counts", COUNTS, counts), ("latency", LATENCY, latency)):
        report.table(name, columns, [row for row in rows if row["who"] in shown])
        report.keep(**{name: rows})
    if len(shown) < len(found):
        report.say(f"{len(found) - len(shown)} more tenants: --json FILE has them\n")
    if wall:
        report.table("replica_use", REPLICAS, replica_rows(fleet, records.end - records.begin))
        tell_rate(report, fleet)
    tell_fairness(report, fleet)
    for error in records.errors:
        report.note(f"failed: {error}")


def tell_rate(report: Report, fleet: Fleet) -> None:
    records, watches = fleet.records, [replica.watch for replica in fleet.replicas]
    wall, steps = records.seconds, sum(watch.num_steps for watch in watches)
    report.keep(
        simulated_s=wall,
        num_prompt_tokens=records.num_prompt_tokens,
        num_output_tokens=records.num_output_tokens,
        tokens_per_s=records.num_output_tokens / wall,
        num_steps=steps,
    )
    report.say(
        f"{wall:,.1f} s simulated: {records.num_output_tokens:,} tokens out, "
        f"{records.num_output_tokens / wall:,.0f} tokens/s, {steps:,} steps"
    )


def tell_cost(report: Report, fleet: Fleet, slo: SLO, price: float) -> None:
    """What a million good tokens cost, with all replicas rented for the whole run."""
    records = fleet.records
    good = sum(good_tokens(slo, group) for group in records.groups.values())
    if records.seconds:
        cost = cost_per_million(price * len(fleet.replicas), good, records.seconds)
        report.keep(good_tokens=good, cost_per_million=cost if good else None)
        told = f"{cost:,.3f} USD for a million" if good else "no token is good, so none has a price"
        report.say(f"cost: {good:,} good tokens of requests that met the SLO; {told}")


def tell_fairness(report: Report, fleet: Fleet) -> None:
    """The largest difference of service on any replica, beside the bound of the VTC paper."""
    services = [r.watch.service for r in fleet.replicas if r.watch.service]
    if not services:
        return
    largest = max(service.largest for service in services)
    pool = fleet.replicas[0].scheduler.pool
    limit = fairness.bound(fleet.records.longest_prompt, pool.num_blocks * pool.block_size)
    report.keep(fairness={"largest_difference": largest, "bound": limit})
    report.say(
        f"fairness: while both had requests in line, two tenants' service (prompt tokens + "
        f"{fairness.OUTPUT_WEIGHT} x output tokens) differed by at most {largest:,}; the bound "
        f"of the fair policy is {limit:,}. It says nothing of a tenant that always goes first: "
        "who never waits is not compared"
    )
