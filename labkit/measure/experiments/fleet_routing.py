"""Routing policies on prompts that begin alike, for notebook 09.

Simulated: the real schedulers and routers of 64 replicas, modelled steps of an H100. Measured: two
real engines here, each on a clock of its own, on which a step takes as long as it took.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from labkit.engine.blocks import BlockPool
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.fleet.replicas import tokens_of
from labkit.fleet.routing import LeastLoaded, PrefixAware, Router
from labkit.measure.bench.drive import percentile
from labkit.measure.simulate import cards
from labkit.measure.simulate.cost import seconds, ticks
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.options import LLAMA_8B
from labkit.measure.simulate.records import Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.requests import Arrival, Simulated, full_hashes
from labkit.measure.simulate.watch import Watch

BLOCK_SIZE, BUDGET, SLOTS = 16, 2048, 8
PREFIX_TOKENS, OWN_TOKENS, OUTPUT_TOKENS = 2048, 64, 16  # of the simulated requests
NUM_PREFIXES = 256
POOL_TOKENS = 24 * 2048  # of the KV cache of each of the 64: room for some 20 prefixes


@dataclass(frozen=True)
class Sent:
    """One request: when it came, where it went, its beginning, tokens found in a cache."""

    at: float
    replica: int
    prefix: str
    num_prompt_tokens: int
    num_cached_tokens: int
    ttft: float


@dataclass
class Routed:
    """What one policy did."""

    policy: str
    sent: list[Sent] = field(default_factory=list)

    @property
    def hit_rate(self) -> float:
        """Prompt tokens that were in the cache, of all."""
        cached = sum(one.num_cached_tokens for one in self.sent)
        return cached / sum(one.num_prompt_tokens for one in self.sent)

    def ttft(self, percent: float) -> float:
        """Seconds, by nearest rank."""
        return percentile([one.ttft for one in self.sent], percent)

    def counts(self, num_replicas: int) -> list[int]:
        """Requests of each replica."""
        return [sum(one.replica == i for one in self.sent) for i in range(num_replicas)]


class Noted(Records):
    """The records of a simulation that keep where each request went, and nothing else."""

    def __init__(self, routed: Routed):
        super().__init__()
        self.routed = routed

    def ended(self, request: Simulated) -> None:
        if request.first is None:
            raise RuntimeError(f"request {request.request_id} ended without a token: "
                               f"{request.error}")  # fmt: skip
        self.routed.sent.append(Sent(
            seconds(request.arrived), request.went_to, request.tenant, request.num_prompt_tokens,
            request.num_cached_tokens, seconds(request.first - request.arrived),
        ))  # fmt: skip


class NotedFleet(Fleet):
    """Writes down on each request which replica got it."""

    def _dispatch(self, request: Simulated) -> None:
        told = self.router.dispatched

        def dispatched(one, view):
            one.went_to = self.views.index(view)
            told(one, view)

        self.router.dispatched = dispatched
        try:
            super()._dispatch(request)
        finally:
            self.router.dispatched = told


def prefix_heavy(
    num_requests: int, rate: float, num_prefixes: int, prefix_tokens: int, own_tokens: int,
    output_tokens: int, seed: int = 0, vocabulary: int = 10_000, favourite: float = 1.0,
) -> list[Arrival]:
    """Prompts with one of `num_prefixes` beginnings and an end of their own, at random times.

    The n-th beginning is asked for 1 / n ** `favourite` as often as the first. Token ids are drawn
    from the first `vocabulary` ones.
    """  # fmt: skip
    draw = random.Random(seed)
    weights = list(accumulate(1 / n**favourite for n in range(1, num_prefixes + 1)))
    prefixes = [[draw.randrange(vocabulary) for _ in range(prefix_tokens)]
                for _ in range(num_prefixes)]  # fmt: skip
    arrivals, now = [], 0.0
    for number in range(num_requests):
        [which] = draw.choices(range(num_prefixes), cum_weights=weights)
        own = [draw.randrange(vocabulary) for _ in range(own_tokens)]
        ids = tuple(prefixes[which] + own)
        arrivals.append(Arrival(now, len(ids), output_tokens, tenant=f"p{which}",
                                prompt_token_ids=ids, request_id=f"q{number}"))  # fmt: skip
        now += draw.expovariate(rate)
    return arrivals


def hashes(request) -> list[bytes]:
    """What a prefix-aware router knows prompts by here."""
    return full_hashes(request, BLOCK_SIZE)


def simulate(
    name: str, router: Router, num_requests: int = 2000, rate: float = 400.0,
    num_replicas: int = 64, seed: int = 0,
) -> Routed:
    """Modelled: an 8-billion-parameter model on H100s, from their maker's figures."""  # fmt: skip
    cost = cards.for_card("H100", LLAMA_8B["model_params"], LLAMA_8B["kv_bytes_per_token"])
    replicas = []
    for _ in range(num_replicas):
        pool = BlockPool(POOL_TOKENS // BLOCK_SIZE, BLOCK_SIZE)
        scheduler = Scheduler(pool, BUDGET, SLOTS)
        replicas.append(Replica(scheduler, cost, Watch(pool, cost)))
    arrivals = prefix_heavy(
        num_requests, rate, NUM_PREFIXES, PREFIX_TOKENS, OWN_TOKENS, OUTPUT_TOKENS, seed
    )
    routed = Routed(name)
    NotedFleet(replicas, router, Noted(routed), keep_ids=True).run(arrivals)
    return routed


class RealReplica:
    """A real engine in the place of a simulated replica: a step takes as long as it took here."""

    def __init__(self, engine, clock: Callable[[], float] = time.perf_counter):
        self.engine, self.clock = engine, clock
        self.inbox: list[Simulated] = []
        self.known: dict[str, Simulated] = {}
        self.events: Sequence = ()  # of the step that ends at `wakes_at`
        self.wakes_at: int | None = None

    def receive(self, request: Simulated, now: int) -> None:
        self.inbox.append(request)
        if self.wakes_at is None:
            self.wakes_at = now

    def wake(self) -> list[Simulated]:
        now, ended = self.wakes_at, []
        for event in self.events:
            request = self.known[event.request_id]
            if event.token_id is not None and request.first is None:
                request.first = now
            if event.finish_reason:
                ended.append(self.known.pop(event.request_id))
        for request in self.inbox:
            self.known[request.request_id] = request
            self.engine.add(request)
        self.inbox, self.events, self.wakes_at = [], (), None
        if self.engine.has_unfinished():
            begin = self.clock()
            self.events = self.engine.step()
            self.wakes_at = now + max(ticks(self.clock() - begin), 1)
        return ended


def serve(
    name: str, router: Router, engines: Sequence, arrivals: Sequence[Arrival],
    clock: Callable[[], float] = time.perf_counter,
) -> Routed:
    """Measured: these engines behind this router, which start with empty caches."""  # fmt: skip
    routed = Routed(name)
    replicas = [RealReplica(engine, clock) for engine in engines]
    NotedFleet(replicas, router, Noted(routed), keep_ids=True).run(arrivals)
    return routed


def cold_seconds(engine, num_tokens: int, repeats: int = 2) -> float:
    """How long this engine takes for one prompt of so many tokens that nobody has asked before."""
    found = []
    for number in range(repeats):
        engine.add(Request(f"cold-{number}", [number + 5] * num_tokens, 1, ignore_eos=True))
        begin = time.perf_counter()
        while engine.has_unfinished():
            engine.step()
        found.append(time.perf_counter() - begin)
    return min(found)


class CountsLate(LeastLoaded):
    """A known mistake: a request is part of a replica's load once it has its first token. In a
    burst nobody has one yet."""

    def dispatched(self, request, replica) -> None:
        """Nothing is known of it yet."""


class Forgets(PrefixAware):
    """A known mistake: every so often all loads are set to 0, whatever is under way."""

    EVERY = 20  # requests

    def choose(self, request, replicas: Sequence) -> int:
        self.num_chosen = getattr(self, "num_chosen", 0) + 1
        if self.num_chosen % self.EVERY == 0:
            for replica in replicas:
                replica.num_requests = replica.num_tokens = 0
            self.others._begin(replicas)
        return super().choose(request, replicas)

    def finished(self, request, replica) -> None:
        """One that is forgotten can't be counted down again."""
        if replica.num_requests > 0 and replica.num_tokens >= tokens_of(request):
            super().finished(request, replica)
