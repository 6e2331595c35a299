"""What notebook 06 measures: what clients see while an engine decides anew in each step.

Every driver takes engines with `add`, `step` and `has_unfinished`, so the learner's scheduler and
sampler run in the same loops as labkit's. Times are seconds on the engine's own clock.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace

from labkit.engine.request import Request
from labkit.measure.generation import Delivery
from labkit.measure.metrics import Latency, latency
from labkit.measure.schedule import Schedule

Served = dict[str, Delivery]  # request id → what came out of the engine, and when


def assemble(loaded, *, scheduler=None, sample=None, num_blocks: int = 96, **limits):
    """A `ContinuousEngine` with a scheduler class or a sampler of one's own in it.

    `scheduler` is a class like `labkit.engine.scheduler.Scheduler`, `sample` a function like
    `labkit.model.sampling.sample`; None is labkit's own. `limits` are the scheduler's.
    """
    from labkit.engine.continuous import ContinuousEngine

    engine = ContinuousEngine(
        loaded.model, loaded.eos_token_ids, num_blocks, prefix_caching=False, **limits
    )
    if scheduler is not None:
        engine.scheduler = scheduler(engine.scheduler.pool, **limits)
    if sample is not None:
        engine.compute = lambda plan: compute(engine.runner, plan, sample)
    return engine


def compute(runner, plan, sample) -> list:
    """What `ContinuousEngine.compute` does, with another sampler."""
    chunks = list(plan.chunks.values())
    runner.copy(plan)
    if not chunks:
        return []
    logits = runner.run([(chunk.request, chunk.num_tokens) for chunk in chunks])
    return sample(logits, [chunk.request for chunk in chunks if chunk.samples])


class WithoutCache:
    """labkit's decoder called like a `transformers` model with `use_cache=False`.

    So the naive rung runs on the model that is in memory already. Its cache is as long as one
    sequence, and is written from the start in every call: nothing is kept.
    """

    def __init__(self, decoder, max_tokens: int = 256, block_size: int = 16):
        from labkit.model.kv_cache import KVCache

        self.decoder, self.device = decoder, decoder.device
        self.table = list(range(-(-max_tokens // block_size)))
        num_blocks = len(self.table) + decoder.spare_blocks
        self.cache = KVCache(decoder.config, num_blocks, block_size, decoder.dtype, decoder.device)

    def __call__(self, input_ids, use_cache=False, **_):
        from labkit.model.flat_batch import FlatBatch, Span

        (token_ids,) = input_ids.tolist()
        batch = FlatBatch.build(
            [Span(token_ids, 0, self.table)], self.cache.block_size, self.decoder.device
        )
        return SimpleNamespace(logits=self.decoder(batch, self.cache)[None])


def serve(
    engine,
    requests: Iterable[Request],
    detokenizer: Callable | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Served:
    """Runs requests to their end; each enters at its `arrival`, seconds after the start.

    `detokenizer()` makes one for each request, whose pieces are then kept with their times:
    what a streaming client sees. Arrivals are turned into times of `engine.clock`.
    """
    line = sorted(requests, key=lambda request: request.arrival)
    started, served, texts = engine.clock(), {}, {}
    while line or engine.has_unfinished():
        while line and started + line[0].arrival <= engine.clock():
            request = line.pop(0)
            request.arrival += started
            served[request.request_id] = Delivery(request.arrival)
            texts[request.request_id] = detokenizer and detokenizer()
            engine.add(request)
        if not engine.has_unfinished():
            sleep(max(0.0, started + line[0].arrival - engine.clock()))
        for event in engine.step():
            note(event, served[event.request_id], texts[event.request_id])
    return served


def note(event, delivery: Delivery, text) -> None:
    """Writes a token down, and what it adds to the text."""
    if event.token_id is not None:
        delivery.token_times.append(event.time)
        piece = text.push(event.token_id) if text else ""
        if event.finish_reason and text:
            piece += text.flush()
        if piece:
            delivery.pieces.append((event.time, piece))


def at_the_end(delivery: Delivery) -> Delivery:
    """The same run for a client without streaming: all text with the last piece."""
    when = delivery.pieces[-1][0]
    return Delivery(delivery.arrival, delivery.token_times, [(when, delivery.text)])


def four_ways(static: Served, continuous: Served) -> dict[str, Served]:
    """Two runs of the same requests, each seen by clients with and without streaming."""
    return {
        f"{batching}, {'streamed' if streamed else 'at the end'}": {
            name: one if streamed else at_the_end(one) for name, one in served.items()
        }
        for batching, served in (("static", static), ("continuous", continuous))
        for streamed in (False, True)
    }


def span_of(served: Served) -> float:
    """Seconds from the first arrival to the last token."""
    end = max(one.token_times[-1] for one in served.values())
    return end - min(one.arrival for one in served.values())


def num_steps(served: Served) -> int:
    """How many steps gave tokens: those of one step have one time."""
    return len({when for one in served.values() for when in one.token_times})


def seen(served: Served) -> dict[str, float]:
    """What clients see in the mean: seconds to the first text and to the last; and tokens/s of
    the whole run, from the first arrival to the last token."""
    clients = list(served.values())
    tokens = sum(len(one.token_times) for one in clients)
    return {
        "first text, s": sum(one.first_text for one in clients) / len(clients),
        "E2E, s": sum(one.last_text for one in clients) / len(clients),
        "tokens/s": tokens / span_of(served),
    }


def stall(engine, chats: Sequence[Request], late: Request, after: int = 4) -> dict[str, Latency]:
    """Chats generate; once each has `after` tokens, `late` arrives. All run to their end.

    TTFT, ITL and E2E of each request; the longest ITL of a chat is the stall.
    """
    now = engine.clock()
    times = {request.request_id: [] for request in (*chats, late)}
    arrivals = dict.fromkeys(times, now)
    for request in chats:
        request.arrival = now
        engine.add(request)
    waiting = True
    while engine.has_unfinished():
        if waiting and all(len(request.output_token_ids) >= after for request in chats):
            late.arrival = arrivals[late.request_id] = engine.clock()
            engine.add(late)
            waiting = False
        for event in engine.step():
            times[event.request_id].append(event.time)
    return {name: latency(arrivals[name], stamps) for name, stamps in times.items()}


def longest_gap(schedule: Schedule, names: Iterable[str]) -> float:
    """The longest time between two tokens of one of these requests."""
    gaps = [0.0]
    for name in names:
        ends = token_ends(schedule, name)
        gaps += [later - earlier for earlier, later in zip(ends, ends[1:], strict=False)]
    return max(gaps)


def token_ends(schedule: Schedule, name: str) -> list[float]:
    """When a request had its tokens: with its last chunk of prefill, and with each decode."""
    parts = [(s.end, p) for s in schedule.steps for p in s.parts if p.request_id == name]
    decodes = [end for end, part in parts if part.kind == "decode"]
    prefills = [end for end, part in parts if part.kind == "prefill"]
    return [*prefills[-1:], *decodes]


def prompt_tokens_between(schedule: Schedule, name: str) -> int:
    """The most prompt tokens of others computed in the steps between two tokens of a request."""
    most = since = 0
    generates = False
    for step in schedule.steps:
        parts = {part.request_id: part for part in step.parts}
        others = [p for p in step.parts if p.kind == "prefill" and p.request_id != name]
        since += sum(part.num_tokens for part in others) if generates else 0
        if name in parts and parts[name].kind == "decode":
            most, since, generates = max(most, since), 0, True
    return most


def static_rows(lengths: dict[str, int], batch_size: int) -> list[list[str | None]]:
    """Who computes in which slot and step of a static batch: a row for each slot.

    Requests need so many steps each. A batch runs until its longest has ended; then the next.
    """
    rows: list[list[str | None]] = [[] for _ in range(batch_size)]
    names = list(lengths)
    for first in range(0, len(names), batch_size):
        batch = names[first : first + batch_size]
        steps = max(lengths[name] for name in batch)
        for slot, row in enumerate(rows):
            name = batch[slot] if slot < len(batch) else None
            busy = [name] * lengths[name] if name else []
            row += busy + [None] * (steps - len(busy))
    return rows


def rows_of(schedule: Schedule, num_slots: int) -> list[list[str | None]]:
    """The same of a schedule: a request takes the first free slot, and keeps it to its end."""
    slots: list[str | None] = [None] * num_slots
    rows: list[list[str | None]] = [[] for _ in slots]
    for step in schedule.steps:
        computing = [part.request_id for part in step.parts]
        for name in computing:
            if name not in slots:
                slots[slots.index(None)] = name
        for slot, name in enumerate(slots):
            rows[slot].append(name if name in computing else None)
        slots = [None if name in step.finished else name for name in slots]
    return rows
