"""Several real models in one memory, for notebook 09: who leaves, and who waits for a load."""

import asyncio
import gc
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from labkit import rungs
from labkit.engine.request import Request
from labkit.fleet.model_cache import Loader, ModelLoadFailed
from labkit.model import facts
from labkit.model.loading import load_decoder

NUM_BLOCKS, BLOCK_SIZE = 32, 16
BYTES_OF = {"float32": 4, "bfloat16": 2, "float16": 2}
PROMPT = range(100, 120)  # token ids: no tokenizer is loaded, which would take as long again
MODEL_MEMORY = 900_000_000

MODELS = {  # what clients call a model: the checkpoint, and its dtype
    "chat": ("smollm2-135m", "bfloat16"),
    "code": ("smollm2-135m", "bfloat16"),
    "mail": ("smollm2-135m", "bfloat16"),
    "write": ("smollm2-135m", "float32"),
    "tiny-1": ("tiny", "float32"),
    "tiny-2": ("tiny", "float32"),
}
ASKED = [
    "chat", "write", "chat", "code", "chat", "write", "chat", "tiny-1",
    "chat", "tiny-2", "chat", "tiny-2", "chat", "mail", "chat", "mail",
]  # fmt: skip


class FirstIn(OrderedDict):
    """For comparison, in the place of a shelf's `entries`: whoever came first leaves first."""

    def move_to_end(self, key, last: bool = True) -> None:
        """Being used changes nothing."""


@dataclass
class Stay:
    """A model in memory: from the beginning of its load to its end, in seconds of the run."""

    name: str
    num_bytes: int
    begin: float
    ready: float | None = None
    end: float | None = None  # None: it was still there when the run was over


@dataclass
class Visit:
    """One request: when it came, and for how long it waited for its model."""

    name: str
    at: float
    waited_s: float
    was_ready: bool


@dataclass
class Visits:
    """A run of requests, one after the other."""

    visits: list[Visit] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def num_hits(self) -> int:
        return sum(visit.was_ready for visit in self.visits)

    @property
    def waited_s(self) -> float:
        return sum(visit.waited_s for visit in self.visits)

    @property
    def num_loads(self) -> int:
        return len(self.stays)


class Stays(Loader):
    """Writes down when models come and go; `load` and `free` are given by a subclass or a test."""

    def __init__(self, sizes: Callable[[str], int], make: Callable[[str], Awaitable[object]],
                 clock: Callable[[], float] = time.perf_counter):  # fmt: skip
        self.sizes, self.make, self.clock = sizes, make, clock
        self.stays: list[Stay] = []

    async def estimate(self, name: str) -> int:
        return self.sizes(name)

    async def load(self, entry) -> tuple[object, int]:
        begin = self.clock()  # whoever had to leave is gone
        stay = Stay(entry.name, self.sizes(entry.name), begin)
        self.stays.append(stay)
        try:
            value = await self.make(entry.name)
        except Exception as error:
            stay.end = self.clock()
            raise ModelLoadFailed(f"model {entry.name!r} can't be loaded: {error}") from error
        stay.ready = self.clock()
        return value, stay.num_bytes

    async def unload(self, entry) -> None:
        entry.value = None
        gc.collect()
        here = next(s for s in reversed(self.stays) if s.name == entry.name)
        here.end = self.clock()


def bytes_of(name: str, models=None) -> int:
    """Weights and KV cache of an engine of this model."""
    source, dtype = (models or MODELS)[name]
    return BYTES_OF[dtype] * numbers_of(source)


@cache  # reading the facts takes a tenth of a second, which no request should wait for
def numbers_of(source: str) -> int:
    """Weights and KV cache of a checkpoint, in numbers of any size."""
    config = facts.read_facts(source).config
    num_slots = NUM_BLOCKS * BLOCK_SIZE
    return facts.num_parameters(config) + config.kv_numbers_per_token * num_slots


def engines(device: str, models=None) -> Stays:
    """A loader of real engines. A load takes a thread, so that others go on."""

    def make(name: str):
        source, dtype = (models or MODELS)[name]
        loaded = load_decoder(source, dtype=dtype, device=device, with_tokenizer=False)
        options = {"num_blocks": NUM_BLOCKS, "block_size": BLOCK_SIZE, "prefix_caching": False}
        return rungs.make("continuous", loaded, **options)

    return Stays(lambda name: bytes_of(name, models), lambda name: asyncio.to_thread(make, name))


def ask(engine) -> None:
    """Two tokens of an answer."""
    engine.add(Request("q", list(PROMPT), max_tokens=2, ignore_eos=True))
    while engine.has_unfinished():
        engine.step()


async def visit_in_turn(cache, asked: Sequence[str], use: Callable = ask) -> Visits:
    """Asks each model of `asked`, one after the other, through a `ModelCache`."""
    clock, seen, run = cache.loader.clock, cache.loader.stays, Visits()
    start = clock()
    for name in asked:
        before, loads = clock(), len(seen)
        async with cache.use(name) as value:
            waited = clock() - before
            run.visits.append(Visit(name, before - start, waited, len(seen) == loads))
            await asyncio.to_thread(use, value)
    run.seconds = clock() - start
    run.stays = [
        replace(stay, begin=stay.begin - start, ready=stay.ready and stay.ready - start,
                end=stay.end and stay.end - start)
        for stay in seen
    ]  # fmt: skip
    await cache.close()
    return run
