"""What happened in a step of a schedule, in a line of words; and in all of it."""

from collections.abc import Sequence

from labkit.measure.schedule import Schedule, Step
from labkit.workbook.plots import plain_number

MOST_NAMES = 6


def named(names: Sequence[str], most: int = MOST_NAMES) -> str:
    """"a", "a and b", "a, b and c", "a, b, c and 9 others"."""
    names = list(names)
    if len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} others"]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def seconds(value: float) -> str:
    """5, 5.25, 0.0132: without the noise of a clock."""
    return plain_number(round(value, 6)) if value < 100 else f"{value:,.1f}"


def words_of(schedule: Schedule, index: int) -> str:
    """What happened in step `index`, counted from 0: who computes what, who waits, who left."""
    steps = schedule.steps
    step, before = steps[index], steps[index - 1] if index else None
    limit = f" of at most {schedule.budget}" if schedule.budget else ""
    tokens = f"{step.num_tokens} token{'s' * (step.num_tokens != 1)}{limit}"
    parts = [
        f"Step {index + 1} of {len(steps)}, {seconds(step.begin)} to {seconds(step.end)} s: "
        f"{tokens}."
    ]
    parts += came(schedule, step, before)
    parts += computed(step)
    parts += moved(step)
    parts += left(schedule, step)
    if step.num_blocks:
        parts.append(f"{step.num_used} of {step.num_blocks} blocks in use.")
    if schedule.trouble and index == len(steps) - 1:
        parts.append(f"The scheduler {schedule.trouble}.")
    return " ".join(parts)


def came(schedule: Schedule, step: Step, before: Step | None) -> list[str]:
    since = before.begin if before else float("-inf")
    new = [name for name, when in schedule.arrivals.items() if since < when <= step.begin]
    refused = [name for name in new if name in schedule.refused]
    taken = [name for name in new if name not in schedule.refused]
    told = [f"{named(taken)} arrived."] if taken else []
    return told + ([f"{named(refused)} refused."] if refused else [])


def computed(step: Step) -> list[str]:
    chunks = [
        f"{part.request_id} (tokens {part.start} to {part.start + part.num_tokens - 1})"
        for part in step.parts
        if part.kind == "prefill"
    ]
    decoding = [part.request_id for part in step.parts if part.kind == "decode"]
    told = [f"Prompt of {named(chunks, 4)}."] if chunks else []
    if decoding:
        told.append(f"{named(decoding)} {'generate' if decoding[1:] else 'generates'}.")
    return told or ["Nothing is computed."]


def moved(step: Step) -> list[str]:
    told, (swapped_out, swapped_in) = [], step.swapped
    if step.preempted:
        lost = f"; {counted(swapped_out)} copied to the host" if swapped_out else ""
        verb = "lose their places" if step.preempted[1:] else "loses its place"
        told.append(f"{named(step.preempted)} {verb} and blocks (preempted{lost}).")
    if step.resumed:
        back = f", with {counted(swapped_in)} copied from the host" if swapped_in else ""
        told.append(f"{named(step.resumed)} {'resume' if step.resumed[1:] else 'resumes'}{back}.")
    if step.waiting:
        told.append(f"In line: {named(step.waiting)}.")
    return told


def counted(num_blocks: int) -> str:
    return f"{num_blocks} block{'s' * (num_blocks != 1)}"


def left(schedule: Schedule, step: Step) -> list[str]:
    ends: dict[str, list[str]] = {}
    for name in step.finished:
        ends.setdefault(schedule.reasons.get(name, ""), []).append(name)
    return [
        f"{named(names)} {'have' if names[1:] else 'has'} ended"
        + (f" ({reason})." if reason else ".")
        for reason, names in ends.items()
    ]


def story_of(schedule: Schedule, num_steps: int) -> str:
    """The first `num_steps` steps in one line, with its numbers."""
    steps = schedule.steps[:num_steps]
    if not steps:
        refused = f"; {len(schedule.refused)} refused" if schedule.refused else ""
        why = f": the scheduler {schedule.trouble}" if schedule.trouble else ""
        return f"{len(schedule.arrivals)} requests, no step{refused}{why}."
    prompt = sum(p.num_tokens for s in steps for p in s.parts if p.kind == "prefill")
    decoded = sum(s.num_tokens for s in steps) - prompt
    preempted = sum(len(s.preempted) for s in steps)
    peak = max(step.num_used for step in steps)
    told = (
        f"{len(schedule.arrivals)} requests in {len(steps)} steps and {seconds(steps[-1].end)} s: "
        f"{prompt:,} tokens in prompts and chunks, {decoded:,} in decodes, "
        f"{preempted} preemption{'s' * (preempted != 1)}; "
        f"at most {peak} of {steps[-1].num_blocks} blocks in use"
    )
    if schedule.refused:
        told += f"; {len(schedule.refused)} refused"
    if schedule.trouble and len(steps) == len(schedule.steps):
        told += f"; the scheduler {schedule.trouble}"
    return told + "."
