"""Two models loaded and unloaded: by Triton Inference Server's API, and by labkit's `ModelCache`.

The server does what it is told: a client says which model is loaded and which leaves. The cache
is told a budget and decides by itself, the least recently used first. The engine's process is
the same in both.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence

import psutil

from labkit.fleet.model_cache import Entry, Loader, ModelCache
from labkit.fleet.triton_server import server
from labkit.fleet.triton_server.client import Client
from labkit.fleet.triton_server.repository import Served
from labkit.serving.engine_client import LAST_WORDS_S
from labkit.serving.homes import ProcessHome
from labkit.serving.messages import EngineConfig, Failed, Ready

GONE_S = 30.0  # until a model that was unloaded is gone
TOKENS = [40, 41, 42, 43]  # mean something to any tokenizer


def tree_bytes(pid: int) -> int:
    """Memory of a process and all that it started; what several share is split among them (PSS,
    on Linux; elsewhere what each has alone)."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        for one in [root, *root.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                memory = one.memory_full_info()
                total += getattr(memory, "pss", memory.uss)
    return total


def num_processes(pid: int) -> int:
    return len(psutil.Process(pid).children(recursive=True))


async def by_server(one: server.Server, client: Client, models: Sequence[Served]) -> list[dict]:
    """Loads each model by the server's API, asks it once, unloads it: a row for each."""
    rows = []
    for served in models:
        before, processes = tree_bytes(one.pid), num_processes(one.pid)
        began = time.perf_counter()
        await client.load(served.name)
        seconds = time.perf_counter() - began
        async for _ in client.stream(served.name, TOKENS, 1):
            pass
        held = tree_bytes(one.pid)
        began = time.perf_counter()
        await client.unload(served.name)
        await wait_until_gone(one, client, served.name, processes)
        rows.append(
            {
                "who": "Triton Inference Server",
                "model": f"{served.model}, {served.dtype}",
                "load_s": seconds,
                "num_bytes": held - before,
                "unload_s": time.perf_counter() - began,
                "freed_bytes": held - tree_bytes(one.pid),
            }
        )
    return rows


async def wait_until_gone(one: server.Server, client: Client, name: str, processes: int) -> None:
    """The memory is free when the model's processes have ended."""
    await client.gone(name)
    last = time.monotonic() + GONE_S
    while num_processes(one.pid) > processes:
        if time.monotonic() > last:
            raise server.ServerError(f"a process of model {name!r} lives after {GONE_S:g} s")
        await asyncio.sleep(0.01)


class EngineLoader(Loader):
    """Models for a `ModelCache`: an engine process for each, as labkit's server starts it."""

    def __init__(self, models: Sequence[Served], sizes: dict[str, int]):
        self.models = {served.name: served for served in models}
        self.sizes = sizes
        self.unloads: dict[str, tuple[float, int]] = {}  # seconds, and bytes that came free

    async def estimate(self, name: str) -> int:
        return self.sizes[name]

    async def load(self, entry: Entry) -> tuple[ProcessHome, int]:
        first = asyncio.get_running_loop().create_future()

        def deliver(message) -> None:
            if isinstance(message, Ready | Failed) and not first.done():
                first.set_result(message)

        home = ProcessHome(EngineConfig(**self.models[entry.name].engine()), deliver)
        try:
            await home.start()
            said = await first_words(home, first)
            if isinstance(said, Failed):
                raise server.ServerError(f"model {entry.name!r} can't be loaded: {said.reason}")
            return home, tree_bytes(home.pid)
        except BaseException:  # a load that is cancelled leaves no engine that nobody owns
            await home.kill()
            raise

    async def unload(self, entry: Entry) -> None:
        held, began = tree_bytes(entry.value.pid), time.perf_counter()
        await entry.value.kill()
        self.unloads[entry.name] = (time.perf_counter() - began, held)


async def first_words(home: ProcessHome, first: asyncio.Future) -> Ready | Failed:
    """What an engine says of its load; how it ended, where it ended without a word."""
    died = asyncio.create_task(home.died())
    try:
        await asyncio.wait({first, died}, return_when=asyncio.FIRST_COMPLETED)
        if not first.done():  # what it said last may be on its way
            await asyncio.wait({first}, timeout=LAST_WORDS_S)
        return first.result() if first.done() else Failed(died.result())
    finally:
        died.cancel()


async def by_cache(models: Sequence[Served], sizes: dict[str, int]) -> list[dict]:
    """The same models through labkit's cache with room for the larger one only: asking for the
    next makes the one before it leave."""
    loader = EngineLoader(models, sizes)
    cache = ModelCache(int(1.3 * max(sizes.values())), loader)
    seconds, held = {}, {}
    try:
        for served in models:
            loading = await time_of_load(cache, loader, served.name)
            seconds[served.name], held[served.name] = loading
    finally:
        await cache.close()
    return [
        {
            "who": "labkit's ModelCache",
            "model": f"{served.model}, {served.dtype}",
            "load_s": seconds[served.name],
            "num_bytes": held[served.name],
            "unload_s": loader.unloads[served.name][0],
            "freed_bytes": loader.unloads[served.name][1],
        }
        for served in models
    ]


async def time_of_load(cache: ModelCache, loader: EngineLoader, name: str) -> tuple[float, int]:
    """Seconds until a model can be used, without what others took to leave for it; its bytes."""
    left, began = set(loader.unloads), time.perf_counter()
    entry = await cache.acquire(name)
    seconds = time.perf_counter() - began
    leaving = sum(loader.unloads[one][0] for one in set(loader.unloads) - left)
    cache.release(entry)
    return seconds - leaving, entry.num_bytes
