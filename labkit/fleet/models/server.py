"""Several models in one server: each is loaded when it is asked for, and leaves for another."""

import asyncio
from argparse import Namespace

from labkit import machine
from labkit.console import SetupError
from labkit.environment import again
from labkit.fleet.model_cache import (
    PATIENCE_S,
    ModelCache,
    ModelLoadFailed,
    ModelTooLarge,
    State,
    gigabytes,
)
from labkit.fleet.models.app import ModelsApp, asked_model
from labkit.fleet.models.metrics import ModelsMetrics, Together
from labkit.fleet.models.served import EngineLoader, Served
from labkit.fleet.models.views import create_front
from labkit.fleet.models.waiting import Waiting
from labkit.serving import server
from labkit.serving.engine_client import LoadFailed
from labkit.serving.errors import APIError
from labkit.serving.metrics import OTHER

SHARE = 0.8  # of the memory that is free at the start, for models
MOST_NAMED = 20  # names of models in an error


class Models:
    """What `server.serve` has to know of several models. The first is loaded at the start."""

    command = "serve"

    def __init__(self, options: Namespace, mine=None):
        self.options = options
        self.budget = options.model_memory or int(SHARE * (machine.memory()[1] or 2**33))
        self.all = [Served(*one, mine) for one in by_path(options)]
        self.by_name = {name: served for served in self.all for name in served.names}
        self.default, self.was_loaded = self.all[0], False
        self.metrics = ModelsMetrics(self.budget)
        self.loader = EngineLoader(
            {served.name: served for served in self.all}, self.budget, self.metrics
        )
        self.cache = ModelCache(self.budget, self.loader, options.model_wait or PATIENCE_S)
        self.waiting = Waiting(self.cache, options.max_queued_requests)
        self.app = ModelsApp(self, create_front(self))

    # ---- asked by the routes

    def find(self, name: str | None) -> Served:
        """A model by one of its names; the first if none is told. Raises APIError."""
        if name is None:
            return self.default
        if name not in self.by_name:
            some = ", ".join(map(repr, [*self.by_name][:MOST_NAMED]))
            told = f"there is no model {name!r}; this server has {some} (GET /v1/models)"
            raise APIError(404, told, "model", "model_not_found")
        return self.by_name[name]

    def state(self, served: Served) -> str:
        """idle, waiting (for memory), loading, ready, leaving (when its successor is there)."""
        entry = self.cache.shelf.entries.get(served.name)
        return "idle" if entry is None else str(entry.state)

    @property
    def status(self) -> str:
        if self.waiting.is_over:
            return "draining"
        return "ready" if self.was_loaded else "starting"

    @property
    def detail(self) -> str:
        told = {"draining": "finishing what is open", "starting": "the first model is being loaded"}
        held = f"{gigabytes(self.cache.shelf.num_bytes)} of {gigabytes(self.budget)} taken"
        return told.get(self.status, held)

    def look_at_metrics(self) -> Together:
        entries = self.cache.shelf.entries
        held = {served.name: 0 for served in self.all}
        held |= {e.name: e.num_bytes for e in entries.values() if e.state is not State.WAITING}
        return self.metrics.look([served.service for served in self.all], held)

    # ---- asked by `server.serve`

    def note_refusal(self, status: int) -> None:
        name = asked_model.get()
        if name == OTHER:
            return self.metrics.refused(status)
        return self.by_name[name].service.metrics.note_refusal(status)

    def announce(self, port: int) -> None:
        self.address = server.address_of(self.options, port)
        print(f"Open: {self.address}    (loading {self.default.name}: wait for Ready)", flush=True)
        server.warn_if_open(self.options)

    async def run(self) -> None:
        """Loads the first model, then waits to be cancelled; unloads all. LoadFailed if it can't
        be loaded."""
        try:
            self.cache.release(await self.cache.acquire(self.default.name))
            self.was_loaded = True
            print(self.banner(), flush=True)
            await asyncio.get_running_loop().create_future()
        except (ModelLoadFailed, ModelTooLarge) as error:
            raise LoadFailed(str(error)) from None
        finally:
            await self.cache.close()

    def banner(self) -> str:
        first = server.banner(self.default.info, self.default.service, self.address)
        lines = [first, f"       up to {gigabytes(self.budget)} for all models together:"]
        for served in self.all:
            total = served.need.total
            much = gigabytes(total)
            too_large = ", which is too much: it is refused" if total > self.budget else ""
            lines.append(f"       {', '.join(served.names)}: {much}{too_large}")
        return "\n".join(lines)

    async def drain(self, timeout: float) -> None:
        self.waiting.end()
        await server.drain([served.service for served in self.all], timeout)

    def engine_pids(self) -> list[int]:
        return server.pids_of([served.service for served in self.all])


def by_path(options: Namespace) -> list[tuple[list[str], Namespace]]:
    """Each checkpoint once: its names, and the options of a server that has it alone."""
    names: dict[str, list[str]] = {}
    for name, path in options.models.items():
        names.setdefault(path, []).append(name)
    alone = vars(options) | {"models": {}}
    return [
        (known, Namespace(**alone | {"model": path, "served_model_name": known[0]}))
        for path, known in names.items()
    ]


async def serve(options: Namespace, mine=None) -> int:
    """Serves until a signal; returns the exit status. A model that isn't there is told at once."""
    models = Models(options, mine)
    for served in models.all:
        try:
            await models.loader.estimate(served.name)
        except ModelLoadFailed as error:
            raise SetupError(
                f"the model {served.name!r} can't be served", str(error), again("serve --help")
            ) from None
    return await server.serve(options, models)
