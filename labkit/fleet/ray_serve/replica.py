"""One replica: labkit servers without their sockets, inside an actor of Ray.

A replica has one model as a rule. With several, it loads one when it is first asked for, and
unloads the one asked for least recently when there are too many: Ray's *multiplexing*. It counts
models where labkit's own cache counts bytes, and knows no pins; `Hosted.close` waits for them.
"""

import asyncio
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import aclosing, contextmanager

from ray import serve

from labkit.fleet.ray_serve.about import About
from labkit.fleet.ray_serve.inward import Call, ask
from labkit.serving.api import create_app
from labkit.serving.service import Service
from labkit.serving.text import TextSide

Answer = tuple[str, int, bytes]  # of which replica, status, body


class Hosted:
    """A model that a replica has: a `Service` and its engine, which is a process of its own."""

    def __init__(self, options: Namespace, name: str):
        options = Namespace(**vars(options))
        options.served_model_name, options.model = name, options.models[name]
        self.service = Service(options, TextSide.load(options.model))
        self.app, self.num_pins = create_app(self.service), 0
        self.engine = asyncio.create_task(self.service.engine.run())
        self.closing: asyncio.Task | None = None
        self.__del__ = self.close  # Ray awaits it before it forgets a model

    async def ready(self) -> "Hosted":
        """Waits until the engine serves. Raises LoadFailed."""
        while self.service.engine.status != "ready":
            await asyncio.wait({self.engine}, timeout=0.05)
            if self.engine.done():
                self.engine.result()
        return self

    @contextmanager
    def pinned(self):
        """The model stays for as long as this lasts."""
        self.num_pins += 1
        try:
            yield
        finally:
            self.num_pins -= 1

    @property
    def is_closed(self) -> bool:
        return self.closing is not None and self.closing.done()

    async def close(self) -> None:
        """Ends the engine, when nobody uses it any more: also when who waits for that is cancelled,
        for nobody else would."""
        self.closing = self.closing or asyncio.create_task(self.end())
        await asyncio.shield(self.closing)

    async def end(self) -> None:
        while self.num_pins:
            await asyncio.sleep(0.05)
        self.engine.cancel()
        await asyncio.wait({self.engine})


class EngineReplica:
    """Ray starts it, watches it, and starts another when it is lost."""

    async def __init__(self, options: Namespace):
        self.name = serve.get_replica_context().replica_id.unique_id
        self.options, self.hosts = options, []
        for name in [*options.models][: options.models_each]:
            await self.hosted(name)

    async def hosted(self, name: str) -> Hosted:
        """Loads a model; see `replica_class`. When it can't, or whoever asked for it has left
        meanwhile, no engine stays behind."""
        host = Hosted(self.options, name)
        self.hosts = [one for one in self.hosts if not one.is_closed] + [host]
        try:
            return await host.ready()
        except BaseException:
            await host.close()
            raise

    async def stream(self, call: Call, model: str, about: About) -> AsyncIterator:
        """The answer of a model: this replica's name, then a head, then bytes as they are made.

        The name comes before the model is there: the front waits for it, and loading takes as
        long as it takes. `about` is for the router, which has read it on the way.
        """
        yield self.name
        host = await self.hosted(model)
        with host.pinned():
            async with aclosing(ask(host.app, call)) as parts:
                async for part in parts:
                    yield part

    async def whole(self, call: Call) -> list[Answer]:
        """What each of its models answers, when all of it is there."""
        answers = []
        for host in self.running():
            parts = [part async for part in ask(host.app, call)]
            answers.append((self.name, parts[0].status, b"".join(parts[1:])))
        return answers

    def running(self) -> list[Hosted]:
        """Those that it has, or loads."""
        return [host for host in self.hosts if not host.engine.done()]

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """What the autoscaler gets to know beside the number of requests."""
        return {"kv_usage": max([await kv_usage(host.service) for host in self.running()] or [0.0])}

    async def check_health(self) -> None:
        """Ray asks every few seconds, and replaces a replica that raises. A dead engine is
        started again by its `Service`; one that isn't, Ray would go on to send requests to."""
        if any(host.engine.done() and not host.closing for host in self.hosts):
            raise RuntimeError("an engine has ended, and nothing starts it again")


async def kv_usage(service: Service) -> float:
    """Share of the blocks in use."""
    sight, info = await service.views.look(), service.engine.info
    return sight.num_used_blocks / info.num_blocks if info and info.num_blocks else 0.0


def replica_class(models_each: int) -> type[EngineReplica]:
    """`EngineReplica` with at most so many models at once."""

    class Replica(EngineReplica):
        @serve.multiplexed(max_num_models_per_replica=models_each)
        async def hosted(self, name: str) -> Hosted:
            return await EngineReplica.hosted(self, name)

    return Replica
