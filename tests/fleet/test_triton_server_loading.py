"""Loads for the cache that come to nothing: no engine is left, and nobody waits for its word."""

import asyncio

import pytest

from labkit.fleet.model_cache import Entry
from labkit.fleet.triton_server import loading
from labkit.fleet.triton_server.repository import Served
from labkit.fleet.triton_server.server import ServerError

SOON_S = 60  # long enough for any machine; a load that hangs fails here


@pytest.fixture
def homes(monkeypatch):
    """Every engine that was started. `homes.module` is what it runs."""

    class Kept(loading.ProcessHome):
        def __init__(self, *args):
            super().__init__(*args)
            self.module = kept.module
            kept.append(self)

    class List(list):
        module = loading.ProcessHome.module

    kept = List()
    monkeypatch.setattr(loading, "ProcessHome", Kept)
    return kept


def load(model="tiny"):
    loader = loading.EngineLoader([Served("m", model=model)], {"m": 1})
    return loader.load(Entry("m"))


def test_an_engine_that_ends_without_a_word_ends_its_load(homes):
    homes.module = "labkit.no_such_module"
    with pytest.raises(ServerError, match="can't be loaded: it ended with status 1"):
        asyncio.run(asyncio.wait_for(load(), SOON_S))


def test_an_engine_that_cannot_load_says_why_and_ends(homes):
    with pytest.raises(ServerError, match="there is no model '/nowhere/at-all'"):
        asyncio.run(asyncio.wait_for(load("/nowhere/at-all"), SOON_S))
    assert homes[0].process.returncode is not None


def test_a_load_that_is_cancelled_leaves_no_engine(homes):
    homes.module = "json.tool"  # says nothing until its input ends

    async def cancelled():
        task = asyncio.create_task(load())
        while not (homes and homes[0].pid):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return homes[0].process.returncode

    assert asyncio.run(cancelled()) is not None
