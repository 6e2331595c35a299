"""One of several models: its service and its routes stay, its engine and its text come and go."""

import asyncio
import logging
import time
from argparse import Namespace
from contextlib import suppress

import psutil

from labkit import machine
from labkit.fleet.model_cache import Entry, Loader, ModelLoadFailed
from labkit.fleet.models.byte_counts import Need, needed_by
from labkit.serving.api import create_app
from labkit.serving.engine_client import LoadFailed
from labkit.serving.engine_process import own_bytes
from labkit.serving.messages import Ready
from labkit.serving.service import Service
from labkit.serving.text import TextSide

LOOK_S = 0.1  # a model that is being loaded is looked at so often
TOLD_S = 2.0  # and the log told of it
ALMOST = 0.99  # of the way: more is told when it is there
log = logging.getLogger("labkit.models")


class Served:
    """A model by its names; the first one is the one that its answers have.

    What it has counted and which requests it remembers outlive its engine.
    """

    def __init__(self, names: list[str], options: Namespace, mine=None):
        self.names, self.options = names, options
        self.service = Service(options, None, mine)  # no text yet
        self.service.names |= {*names}
        self.app = create_app(self.service)
        self.need: Need | None = None  # as reckoned, then as measured
        self.info: Ready | None = None  # what its last engine said of itself
        self.engine: asyncio.Task | None = None
        self.rest()

    @property
    def name(self) -> str:
        return self.names[0]

    def rest(self) -> None:
        """As it is while it isn't loaded."""
        self.engine, self.service.text = None, None
        self.service.engine = self.service.make_engine()
        self.service.engine.status = "idle"
        self.service.engine.detail = "not loaded; the next request for it loads it"

    async def start(self) -> None:
        """Starts its engine, and waits until it serves. ModelLoadFailed, and nothing is left."""
        service, ready = self.service, asyncio.Event()
        service.engine = service.make_engine()
        service.on_first_ready = lambda info: ready.set()
        try:
            service.text = await asyncio.to_thread(TextSide.load, self.options.model)
            self.engine = asyncio.create_task(service.engine.run())
            waiting = asyncio.create_task(ready.wait())
            await asyncio.wait({self.engine, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if self.engine.done():
                self.engine.result()
        except (LoadFailed, ValueError, OSError) as error:
            await self.stop()
            raise ModelLoadFailed(f"model {self.name!r} can't be loaded: {error}") from None
        except BaseException:
            await self.stop()
            raise
        self.info = service.engine.info

    async def stop(self) -> None:
        """Ends its engine, and gives back what it held."""
        if self.engine is not None:
            self.engine.cancel()
            await asyncio.wait({self.engine})
            self.service.engine.mourn("its model was unloaded")  # who asked it something hears it
        self.rest()

    def loaded_bytes(self) -> int:
        """What its engine has filled so far."""
        home = self.service.engine.home
        with suppress(psutil.Error):
            return own_bytes(home.pid) if home is not None and home.pid else 0
        return 0


class EngineLoader(Loader):
    """Loads and unloads models for a `ModelCache` of `budget` bytes: a process for each engine."""

    def __init__(self, models: dict[str, Served], budget: int, metrics):
        self.models, self.budget, self.metrics = models, budget, metrics

    async def estimate(self, name: str) -> int:
        served = self.models[name]
        if served.need is None:
            try:
                served.need = await asyncio.to_thread(needed_by, served.options)
            except (ValueError, OSError) as error:
                raise ModelLoadFailed(f"model {name!r} can't be loaded: {error}") from None
        return served.need.total

    async def load(self, entry: Entry) -> tuple[Served, int]:
        served, began = self.models[entry.name], time.monotonic()
        log.info("loading a model", extra={"model": entry.name, "expected_bytes": entry.num_bytes})
        watching = asyncio.create_task(self.watch(entry, served))
        try:
            await served.start()
        except Exception as error:
            log.warning("a model was not loaded", extra={"model": entry.name, "reason": str(error)})
            self.metrics.failed(entry.name)
            raise
        finally:
            watching.cancel()
        entry.progress = 1.0
        total, seconds = served.info.num_bytes, time.monotonic() - began
        loaded = min(served.loaded_bytes(), total)
        served.need = Need(loaded, total - loaded)
        self.metrics.loaded(entry.name, seconds)
        told = {"model": entry.name, "bytes": total, "load_s": round(seconds, 2)}
        log.info("a model is loaded", extra=told)
        return served, total

    async def watch(self, entry: Entry, served: Served) -> None:
        """Keeps `entry.progress`: how much of what is expected its process has filled."""
        told = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            done = served.loaded_bytes() / max(served.need.loaded, 1)
            entry.progress = max(entry.progress, min(done, ALMOST))
            if time.monotonic() > told + TOLD_S:
                told = time.monotonic()
                percent = round(100 * entry.progress)
                log.info("still loading", extra={"model": entry.name, "percent": percent})

    async def unload(self, entry: Entry) -> None:
        await entry.value.stop()
        self.metrics.unloaded(entry.name)
        log.info("a model is unloaded", extra={"model": entry.name, "bytes": entry.num_bytes})

    def spare_bytes(self) -> int:
        """What would still be free if the models took all that they may; of a GPU's memory
        nothing is known here."""
        free = machine.memory()[1]
        on_gpu = any(served.options.device.startswith("cuda") for served in self.models.values())
        if on_gpu or free is None:
            return 0
        held = sum(served.loaded_bytes() for served in self.models.values())
        return max(0, int(free) + held - self.budget)
