"""What the widgets draw, as plain JSON: pure functions from the data of a figure."""

from collections.abc import Mapping, Sequence

from labkit.measure.schedule import Schedule, Step
from labkit.workbook.figures import batches, race, xray
from labkit.workbook.figures.schedule import rows_of
from labkit.workbook.figures.schedule_words import story_of, words_of
from labkit.workbook.figures.xray import XRay

MOST_STEPS = 1500  # to scrub through; a longer schedule shows its beginning
MOST_TOLD = 36  # rows with the state of their request beside them


def timeline_data(schedule: Schedule, title: str) -> dict:
    """Rows of bars as in the figure, and for each step its counts, its words and the state of
    every request."""
    shown = schedule.steps[:MOST_STEPS]
    rows = rows_of(schedule, MOST_STEPS)
    names = [row.name for row in rows]
    last = max([step.end for step in shown] + [row.arrival for row in rows], default=1.0)
    most_tokens = max((step.num_tokens for step in shown), default=1) or 1
    most_blocks = max((step.num_used for step in shown), default=1) or 1
    budget, pool = schedule.budget or 0, max((step.num_blocks for step in shown), default=0)
    near_budget, near_pool = 0 < budget <= 4 * most_tokens, 0 < pool <= 4 * most_blocks
    if len(schedule.steps) > len(shown):
        title = f"{title} (the first {len(shown):,} of {len(schedule.steps):,} steps)"
    return {
        "title": title,
        "story": story_of(schedule, len(shown)),
        "last": last or 1.0,
        "mostTokens": max(most_tokens, budget) if near_budget else most_tokens,
        "mostBlocks": max(most_blocks, pool) if near_pool else most_blocks,
        "tokensNote": "budget of a step" if near_budget else "most in a step",
        "blocksNote": "size of the pool" if near_pool else f"most at once (of {pool:,})",
        "rows": [
            {
                "name": row.name,
                "about": f"{row.name} {row.tenant}".strip(),
                "arrival": row.arrival,
                "end": row.end,
                "bars": [list(bar) for bar in row.bars],
                "tokens": row.tokens,
            }
            for row in rows
        ],
        "steps": [
            step_data(schedule, i, states) for i, states in enumerate(states_of(shown, names))
        ],
    }


def step_data(schedule: Schedule, index: int, states: list[str]) -> dict:
    step = schedule.steps[index]
    return {
        "begin": step.begin,
        "end": step.end,
        "prefill": sum(p.num_tokens for p in step.parts if p.kind == "prefill"),
        "decode": sum(p.num_tokens for p in step.parts if p.kind == "decode"),
        "used": step.num_used,
        "words": words_of(schedule, index),
        "states": states,
    }


def states_of(steps: Sequence[Step], names: Sequence[str]) -> list[list[str]]:
    """For each step what every request is doing in it, in a word or two, with its blocks."""
    if len(names) > MOST_TOLD:
        return [[] for _ in steps]
    told, away, ended = [], set(), set()
    for step in steps:
        away = (away | {*step.preempted}) - {*step.resumed}
        parts = {part.request_id: part for part in step.parts}
        told.append([state_of(step, name, parts.get(name), away, ended) for name in names])
        ended |= {*step.finished}
    return told


def state_of(step: Step, name: str, part, away: set[str], ended: set[str]) -> str:
    if name in ended:
        return "ended"
    count = len(step.blocks.get(name, ()))
    holds = f", {count} block{'s' * (count != 1)}" if count else ""
    if part:
        return (f"prefill {part.num_tokens}" if part.kind == "prefill" else "decode") + holds
    if name in step.waiting:
        return "preempted" if name in away else "waits"
    return f"runs{holds}" if count else ""


def xray_data(states: Sequence[XRay], title: str) -> dict:
    """Each state as its blocks, [(request, slots filled), ...] by number, and its tables.

    Requests are numbered alike in all states, so that each keeps its colour.
    """
    names = names_of(states)
    labels = xray.labels_of(names)
    return {
        "title": title,
        "names": names,
        "labels": [labels[name] for name in names],
        "numBlocks": max(state.num_blocks for state in states),
        "blockSize": states[0].block_size,
        "states": [state_data(state, names) for state in states],
    }


def names_of(states: Sequence[XRay]) -> list[str]:
    """All requests, in order of their first block table."""
    return list(dict.fromkeys(name for state in states for name in state.tables))


def state_data(state: XRay, names: list[str]) -> dict:
    place = {name: i for i, name in enumerate(names)}
    held: dict[int, list] = {}
    for name, table in state.tables.items():
        for index, block in enumerate(table):
            held.setdefault(block, []).append((place[name], state.filled(name, index)))
    name, position = state.bad or (None, 0)
    return {
        "words": xray.story_of(state),
        "blocks": held,
        "cached": sorted({*state.cached} - {*held}),
        "hit": xray.judged(state)[0] if state.bad else None,
        "bad": [place[name], max(position, 0) // state.block_size] if name in place else None,
        "tables": [
            (place[name], [(block, state.filled(name, i)) for i, block in enumerate(table)])
            for name, table in state.tables.items()
        ],
    }


def race_data(lanes: race.Lanes, title: str) -> dict:
    """Lanes with their pieces in order of time."""
    return {
        "title": title,
        "story": race.story_of(lanes),
        "last": race.last_second(lanes) or 1.0,
        "lanes": [
            {"name": name, "pieces": [list(piece) for piece in race.sorted_pieces(pieces)]}
            for name, pieces in lanes.items()
        ],
    }


def batch_data(points: Sequence, title: str, slo_s: float | None, latency: str = "e2e_s") -> dict:
    """Points in order of size, each with its sentence for every latency; knee and first SLO."""
    points = sorted(points, key=lambda point: point.batch_size)
    turn = batches.knee(points)
    return {
        "title": title,
        "slo": slo_s,
        "latency": latency,
        "knee": turn and turn.batch_size,
        "story": {name: batches.story_of(points, None, name) for name in batches.LATENCIES},
        "points": [point_data(point) for point in points],
    }


def point_data(point) -> Mapping:
    latencies = {name: getattr(point, name) or 0.0 for name in batches.LATENCIES}
    told = {name: batches.tell(point, name) for name in latencies}
    counts = {"batch_size": point.batch_size, "tokens_per_s": point.tokens_per_s}
    return {**counts, **latencies, "told": told}
