"""The capstone in tables and sentences."""

import math
from collections.abc import Sequence
from statistics import fmean

from labkit.measure.bench.report import Column, Report, percent
from labkit.measure.capstone.attacks import Attack
from labkit.measure.capstone.board import Entry
from labkit.measure.capstone.scoring import ClassScore, Score
from labkit.measure.capstone.workloads import Workload
from labkit.measure.cost import price_of
from labkit.measure.simulate.requests import Arrival

TASK = [
    Column("class", "class"),
    Column("requests", "requests", "{:,}"),
    Column("prompt", "tokens in", "{:,.0f}"),
    Column("output", "out (mean)", "{:,.0f}"),
    Column("priority", "priority"),
    Column("share", "of them", percent),
    Column("slo", "must meet"),
]
CLASSES = [
    Column("name", "class"),
    Column("requests", "requests", "{:,}"),
    Column("met", "SLO met", percent),
    Column("share", "promised", percent),
    Column("kept", ""),
    Column("failed", "failed", "{:,}"),
    Column("missed_ttft", "over TTFT", percent),
    Column("missed_tpot", "over TPOT", percent),
    Column("missed_e2e", "over E2E", percent),
    Column("ttft", "TTFT s", "{:.2f}"),
    Column("tpot", "TPOT ms", lambda seconds: f"{1000 * seconds:.1f}"),
    Column("e2e", "E2E s", "{:.1f}"),
]
BOARD = [
    Column("rank", "rank"),
    Column("name", "name"),
    Column("cost", "USD / million good tokens", "{:.3f}"),
    Column("kept", "promises"),
    Column("configuration", "configuration"),
    Column("date", "on"),
]
DAMAGE = [
    Column("name", "class"),
    *(Column(key, title, percent) for key, title in (
        ("alone", "SLO met alone"), ("plain", "with the yardstick"), ("attacked", "attacked"),
        ("damage", "damage"),
    )),
    Column("broken", ""),
]  # fmt: skip
CLUES = {  # a limit that many miss → what decides about it
    "ttft": "their first token comes late: who goes first, how many may run, and where it is sent",
    "tpot": "their stream is slow: how long a step is, and how many share it, on how fast a card",
    "e2e": "they are not done in time: when they begin, and how much capacity there is in all",
}


def tell_task(out: Report, workload: Workload) -> None:
    out.say(f"workload  {workload.name} ({workload.fingerprint}), {workload.seconds:g} s")
    rows = []
    for kind in workload.classes:
        own = [arrival for arrival in workload.arrivals if arrival.tenant == kind.name]
        rows.append({
            "class": kind.name, "requests": len(own), "priority": kind.priority,
            "prompt": fmean(one.num_prompt_tokens for one in own) if own else None,
            "output": fmean(one.num_output_tokens for one in own) if own else None,
            "share": kind.share, "slo": str(kind.slo),
        })  # fmt: skip
    out.keep(workload=workload.name, fingerprint=workload.fingerprint)
    out.table("classes", TASK, rows)


def class_row(one: ClassScore) -> dict:
    return {
        "name": one.name, "requests": one.num_requests, "met": one.met, "share": one.share,
        "kept": "kept" if one.is_kept else "BROKEN", "failed": one.num_failed,
        "ttft": one.ttft, "tpot": one.tpot, "e2e": one.e2e,
        **{f"missed_{name}": share for name, share in one.missed.items()},
    }  # fmt: skip


def tell_score(out: Report, found: Score, price: float | None = None) -> None:
    """The classes, the cost, and clues; latencies are at the percentile that was promised."""
    chosen = found.configuration
    out.say(f"{chosen}; modelled")
    out.table("score", CLASSES, [class_row(one) for one in found.classes])
    listed = price_of(chosen.card)
    source = f"{listed.provider}, {listed.instance}, list price of {listed.date}"
    source = source if price is None else "your price"
    cost = f"{found.cost:.3f} USD for a million good tokens: {found.good_tokens:,} in"
    cost = cost if found.good_tokens else "no token is good, so none has a price:"
    out.say(f"{cost} {found.seconds:.1f} s, at {found.price_per_hour:.2f} USD an hour ({source})")
    out.say(
        f"cards busy {found.busy:.0%} of the time, KV cache at most {found.kv_peak:.0%} full, "
        f"{found.num_preemptions:,} preemptions"
    )
    for clue in clues(found):
        out.say(clue)
    out.keep(
        configuration=chosen.to_json(), cost=None if math.isinf(found.cost) else found.cost,
        is_valid=found.is_valid, good_tokens=found.good_tokens, seconds=found.seconds,
        price_per_hour=found.price_per_hour, busy=found.busy, kv_peak=found.kv_peak,
    )  # fmt: skip


def clues(found: Score) -> list[str]:
    """For each broken promise the limit that is missed most, and what decides about it."""
    broken = [one for one in found.classes if not one.is_kept]
    told = []
    for one in broken:
        if one.num_failed > one.num_requests * (1 - one.share):
            told.append(
                f"{one.name}: {one.num_failed:,} were refused, or ended by their deadline: too "
                "little of something, or somebody else is always first"
            )
        elif one.missed:
            limit = max(one.missed, key=one.missed.get)
            told.append(f"{one.name}: {CLUES[limit]}")
    if not broken:
        told.append("every promise is kept. Which of them has room left, and what does it cost?")
    return told


def tell_board(out: Report, entries: Sequence[Entry]) -> None:
    if not entries:
        out.say("nobody is on the leaderboard for this workload yet: score --name NAME")
        return
    rows = [
        {
            "rank": rank, "name": one.name, "date": one.date,
            "cost": None if math.isinf(one.cost) else one.cost,
            "kept": "all kept" if one.is_valid else "broken", "configuration": one.configuration,
        }
        for rank, one in enumerate(entries, start=1)
    ]  # fmt: skip
    out.table("leaderboard", BOARD, rows)
    for row in rows:
        row["configuration"] = row["configuration"].to_json()


def tell_attack(out: Report, name: str, arrivals: Sequence[Arrival], found: Attack) -> None:
    tokens = sum(one.num_prompt_tokens + one.num_output_tokens for one in arrivals)
    out.say(f"attack    {name}: {len(arrivals)} requests, {tokens:,} tokens")
    out.say(f"against   {found.alone.configuration}; modelled")
    damage, broken = found.damage, found.broken
    rows = [
        {
            "name": one, "alone": found.alone.met[one], "plain": found.plain.met[one],
            "attacked": found.attacked.met[one], "damage": damage[one],
            "broken": "BROKEN" if one in broken else "",
        }
        for one in damage
    ]  # fmt: skip
    out.table("attack", DAMAGE, rows)
    if broken:
        out.note(f"broken: {', '.join(broken)}. What would have to change so that it holds?")
    else:
        out.note("no promise that the yardstick leaves is broken by this attack.")
