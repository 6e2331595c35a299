"""A replica and its models: who loads one, who ends it. Engines are tasks that a test can see."""

import asyncio
from argparse import Namespace
from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install .[ray]")
from labkit.fleet.ray_serve import replica as replicas  # noqa: E402
from labkit.fleet.ray_serve.about import About  # noqa: E402
from labkit.fleet.ray_serve.inward import Call  # noqa: E402
from labkit.serving.engine_client import LoadFailed  # noqa: E402


class Engine:
    """An engine that serves, or can't be loaded, as soon as it is told so."""

    def __init__(self):
        self.status, self.told, self.is_running = "starting", asyncio.Event(), False

    async def run(self):
        self.is_running = True
        try:
            await self.told.wait()
            if self.status != "ready":
                raise LoadFailed("no such file")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # its process is killed
            self.is_running = False


@pytest.fixture
def replica(monkeypatch):
    engines = []

    def service(options, text):
        engines.append(Engine())
        return SimpleNamespace(engine=engines[-1])

    monkeypatch.setattr(replicas, "Service", service)
    monkeypatch.setattr(replicas, "create_app", lambda service: None)
    monkeypatch.setattr(replicas.TextSide, "load", lambda model: None)
    made = replicas.EngineReplica.__new__(replicas.EngineReplica)
    made.name, made.options, made.hosts = "one", Namespace(models={"a": "a", "b": "b"}), []
    made.engines = engines
    return made


def run(work):
    asyncio.run(asyncio.wait_for(work, 20))


async def loading(replica):
    """A task that loads a model, whose engine has been started."""
    task = asyncio.create_task(replica.hosted("a"))
    while not (replica.engines and replica.engines[-1].is_running):
        await asyncio.sleep(0)
    return task, replica.engines[-1]


async def loaded(replica):
    task, engine = await loading(replica)
    engine.status = "ready"
    engine.told.set()
    return await task, engine


def test_a_load_that_is_cancelled_leaves_no_engine(replica):
    async def check():
        task, engine = await loading(replica)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not engine.is_running and not replica.running()
        await replica.check_health()  # the next request loads it
        _, engine = await loaded(replica)
        assert engine.is_running and len(replica.hosts) == 1

    run(check())


def test_a_load_that_fails_leaves_no_engine_and_a_replica_that_is_well(replica):
    async def check():
        task, engine = await loading(replica)
        engine.told.set()
        with pytest.raises(LoadFailed, match="no such file"):
            await task
        assert not replica.running()
        await replica.check_health()

    run(check())


def test_it_says_who_it_is_before_the_model_is_there(replica):
    """The front waits 30 s for that; a large model needs longer."""

    async def check():
        answer = replica.stream(Call("POST", "/"), "a", About())
        assert await anext(answer) == "one"
        assert not replica.engines
        await answer.aclose()

    run(check())


def test_a_model_ends_when_nobody_uses_it_even_if_who_waited_for_that_has_left(replica):
    async def check():
        host, engine = await loaded(replica)
        with host.pinned():
            closing = asyncio.create_task(host.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            assert engine.is_running
        while engine.is_running:
            await asyncio.sleep(0.01)
        await replica.check_health()

    run(check())


def test_an_engine_that_nobody_starts_again_makes_a_replica_ill(replica):
    async def check():
        host, engine = await loaded(replica)
        await replica.check_health()
        host.engine.cancel()
        await asyncio.wait({host.engine})
        with pytest.raises(RuntimeError, match="an engine has ended"):
            await replica.check_health()

    run(check())
