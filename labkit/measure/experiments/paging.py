"""Notebook 04: which share of the KV memory holds tokens, and what a batch gets out of it."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from labkit.engine.request import Request, State
from labkit.engine.scheduler import Scheduler
from labkit.measure.bench.slots import EndWatch, row, stored
from labkit.measure.schedule import play
from labkit.measure.simulate.synthetic import synthetic

RULES = (  # what a company tells its assistant before every question
    "You are the assistant of Harbour Bikes, a shop that rents and repairs bicycles in three towns "
    "by the sea. Answer in the language of the customer, in at most three sentences, and never "
    "invent a price. A city bike costs 14 euros a day, an electric bike 32 euros, a cargo bike 45 "
    "euros; children under twelve ride for free on a trailer. Helmets and locks are part of every "
    "rental. A reservation can be cancelled until the evening before; after that half of the "
    "price is due. Bikes are returned by seven in the evening, at any of the three shops. A flat "
    "tyre is mended at no cost within ten kilometres of a shop; other damage is looked at by a "
    "mechanic first. Repairs of private bicycles take two working days, in spring up to five. The "
    "shops are open from nine to seven, on Sundays from ten to four, and closed in January. If a "
    "customer is angry, say that you are sorry, and offer a call from the manager. If you don't "
    "know the answer, say so and name the telephone number of the nearest shop."
)
LONGEST = 4096  # tokens of prompt and output: max_model_len of the conversations


def conversations(count: int, seed: int = 4, shrink: int = 1) -> list[tuple[int, int]]:
    """(prompt tokens, output tokens) of `count` requests like those of Azure's conversations.

    Those longer than `LONGEST` are left out, as a server refuses them. With `shrink` both numbers
    are divided by it (at least 1), so that a laptop can compute them.
    """
    draws = synthetic("conv", 2 * count + 100, seed=seed)
    lengths = [(a.num_prompt_tokens, a.num_output_tokens) for a in draws]
    fit = [pair for pair in lengths if sum(pair) <= LONGEST][:count]
    return [(max(p // shrink, 1), max(o // shrink, 1)) for p, o in fit]


def unused_by_rows(lengths: Sequence[tuple[int, int]], row_length: int = LONGEST) -> dict:
    """What a row of `row_length` slots for each request leaves empty, as a row of `slots`."""
    return row(row_length, [(row_length, stored(*pair)) for pair in lengths], "computed")


def unused_by_blocks(pool, lengths: Sequence[tuple[int, int]]) -> dict:
    """The same, counted: the requests run through a scheduler over `pool` on a virtual clock.

    What each holds is noted in its last step, just before its blocks are free again.
    """
    scheduler = Scheduler(pool, max_num_batched_tokens=8192, max_num_seqs=len(lengths))
    watch = EndWatch(scheduler)
    play(scheduler, requests_of(lengths, lambda number, count: [number] * count))
    return row(pool.block_size, list(watch.pairs.values()), "counted")


def requests_of(
    lengths: Iterable[tuple[int, int]], tokens: Callable[[int, int], list[int]]
) -> list[Request]:
    """A request for each pair; `tokens(number, count)` is the prompt of request `number`."""
    return [
        Request(f"r{number}", tokens(number, prompt), max_tokens=output, ignore_eos=True)
        for number, (prompt, output) in enumerate(lengths)
    ]


@dataclass(frozen=True)
class PagingRun:
    """One engine over one list of requests that all arrived at time 0."""

    name: str
    seconds: float
    num_steps: int
    num_tokens: int  # generated
    most_running: int  # requests in the largest batch
    unused_share: float  # of the slots reserved for running requests, over all steps
    queue_s: tuple[float, ...]  # seconds in line before its first step, for each request

    @property
    def tokens_per_s(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def seconds_per_step(self) -> float:
        return self.seconds / self.num_steps

    @property
    def mean_queue_s(self) -> float:
        return fmean(self.queue_s)


def drive(name: str, engine, requests: Sequence[Request]) -> PagingRun:
    """Runs a batch engine with a cache, rows or blocks, until all `requests` have ended."""
    for request in requests:
        engine.add(request)
    began, most, held, queue = time.perf_counter(), 0, [], {}
    while engine.has_unfinished():
        line, before = {r.request_id for r in engine.line}, time.perf_counter() - began
        most = max(most, len(engine.step()))  # an event for each request of the step
        queue |= dict.fromkeys(line - {r.request_id for r in engine.line}, before)
        held.append(slots_held(engine, [r for r in engine.batch if r.state is State.RUNNING]))
    seconds = time.perf_counter() - began
    reserved, filled = (sum(column) for column in zip(*held, strict=True))
    num_tokens = sum(len(r.output_token_ids) for r in requests)
    waits = tuple(queue[r.request_id] for r in requests)
    unused = 1 - filled / reserved
    return PagingRun(name, seconds, len(held), num_tokens, most, unused, waits)


def slots_held(engine, running: Sequence[Request]) -> tuple[int, int]:
    """(reserved, filled): slots that nobody but `running` may use, and those with a token."""
    block = engine.runner.cache.block_size  # on the rung with rows a block is a row
    reserved = sum(len(request.block_table) for request in running) * block
    return reserved, sum(request.num_computed_tokens for request in running)


def chat(loaded, system: str, question: str) -> list[int]:
    """Token ids of a question with the operator's instructions before it, ready to be answered."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return loaded.tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )


@dataclass(frozen=True)
class FirstToken:
    """How one request got its first token."""

    name: str
    ttft: float  # seconds
    num_prompt_tokens: int
    num_cached_tokens: int  # of these, found in the prefix cache

    @property
    def num_computed(self) -> int:
        return self.num_prompt_tokens - self.num_cached_tokens


def first_token(name: str, engine, request: Request) -> FirstToken:
    """Runs `request` alone to its end; its TTFT is taken when the token is there to be read."""
    began = time.perf_counter()
    engine.add(request)
    times = []
    while engine.has_unfinished():
        if engine.step():
            times.append(time.perf_counter())
    cached = request.num_cached_tokens
    return FirstToken(name, times[0] - began, request.num_prompt_tokens, cached)
