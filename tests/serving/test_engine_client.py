"""The engine as the API sees it: what becomes of those who ask when it can't start, or ends."""

import asyncio

import pytest
import zmq

from labkit.serving import engine_client
from labkit.serving.engine_client import EngineClient, EngineDown, EngineLost
from labkit.serving.homes import Home


def client(monkeypatch, home: type[Home]) -> EngineClient:
    monkeypatch.setitem(engine_client.HOMES, "fake", home)
    never = {"on_step": lambda step: None, "on_death": lambda reason: None}
    return EngineClient(None, "fake", **never, has_open=lambda: False)


class Quiet(Home):
    """Takes what it is sent, and answers nothing."""

    async def start(self):
        pass

    def send(self, message):
        pass

    async def died(self):
        await asyncio.Event().wait()

    async def kill(self):
        pass


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), zmq.ZMQError(24)])
def test_an_engine_that_cannot_be_started_now_is_no_end_of_the_server(monkeypatch, error):
    class Full(Quiet):
        async def start(self):
            raise error

    reason = asyncio.run(client(monkeypatch, Full).live())
    assert reason.startswith("the engine could not be started: ")


def test_who_asked_an_engine_that_ended_is_told_apart_from_who_came_later(monkeypatch):
    """Only of the first it may be that their request ended it."""

    async def story():
        engine = client(monkeypatch, Quiet)
        engine.home, engine.status = Quiet(None, None), "ready"
        asked = asyncio.create_task(engine.look())
        await asyncio.sleep(0)
        engine.mourn("it was ended by signal 9")
        with pytest.raises(EngineLost):
            await asked
        with pytest.raises(EngineDown) as late:
            await engine.look()
        assert type(late.value) is EngineDown

    asyncio.run(story())
