"""Requests that wait for their model: who may, who is told what, and that no pin is lost."""

import asyncio

import pytest
from fake_models import Play, played
from hypothesis import given
from hypothesis import strategies as st

from labkit.fleet.model_cache import State
from labkit.fleet.models.waiting import Waiting
from labkit.serving.errors import APIError


class Client:
    """Who sent a request: stays until `leave`."""

    def __init__(self):
        self.has_left = asyncio.Event()

    async def receive(self):
        await self.has_left.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self.has_left.set()


class Room:
    """A cache, and clients that wait for its models."""

    def __init__(self, most: int = 3):
        self.one = Play()
        self.waiting = Waiting(self.one.cache, most)

    async def ask(self, name: str, deadline_s=None) -> tuple[Client, asyncio.Task]:
        client = Client()
        task = asyncio.create_task(self.waiting.pin(name, client.receive, deadline_s))
        await self.one.settle()
        return client, task

    @property
    def num_pins(self) -> int:
        return sum(entry.num_pins for entry in self.one.cache.shelf.entries.values())


def in_room(test):
    def run():
        async def story():
            await test(Room())

        played(story())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def error_of(task: asyncio.Task) -> APIError:
    error = task.exception()
    assert isinstance(error, APIError), error
    return error


@in_room
async def test_who_waits_gets_the_model_and_a_pin(room):
    _, task = await room.ask("a")
    assert room.waiting.count["a"] == 1
    await room.one.loaded("a")
    assert task.result().state is State.READY and room.num_pins == 1
    assert room.waiting.count["a"] == 0


@in_room
async def test_who_leaves_is_forgotten(room):
    (first, gone), (_, other) = await room.ask("a"), await room.ask("a")
    first.leave()
    await room.one.settle()
    assert gone.result() is None and room.waiting.count["a"] == 1
    await room.one.loaded("a")
    assert other.result().num_pins == 1


@in_room
async def test_who_leaves_as_the_model_comes_leaves_no_pin(room):
    client, task = await room.ask("a")
    room.one.loader.loaded("a")
    client.leave()
    await room.one.settle()
    if task.result() is not None:  # it came first, and is the caller's to give back
        room.one.cache.release(task.result())
    assert room.num_pins == 0


@in_room
async def test_no_more_wait_than_may_and_who_finds_the_model_loaded_does_not_wait(room):
    tasks = [(await room.ask("a"))[1] for _ in range(3)]
    refused = error_of((await room.ask("a"))[1])
    assert (refused.status, refused.retry_after) == (429, 5) and "3" in refused.message
    await room.one.loaded("a")
    assert all(task.result() for task in [*tasks, (await room.ask("a"))[1]])


@in_room
async def test_a_deadline_ends_the_wait(room):
    _, task = await room.ask("a", deadline_s=2.0)
    await room.one.passes(1.5)
    assert not task.done()
    await room.one.passes(1.0)
    refused = error_of(task)
    assert (refused.status, refused.code, refused.param) == (408, "deadline", "deadline_ms")
    await room.one.loaded("a")
    assert room.num_pins == 0


@in_room
async def test_when_the_server_ends_all_who_wait_are_told_and_nobody_may_wait_any_more(room):
    tasks = [(await room.ask(name))[1] for name in ("a", "b")]
    room.waiting.end()
    await room.one.settle()
    tasks.append((await room.ask("a"))[1])
    assert [error_of(task).code for task in tasks] == ["draining"] * 3
    assert room.num_pins == 0


@pytest.mark.parametrize(
    ("name", "happens", "status", "code"),
    [
        ("huge", None, 400, "model_too_large"),
        ("a", "fails", 503, "model_load_failed"),
        ("e", "passes", 503, "models_busy"),
    ],
)
def test_why_there_is_no_model_is_told_in_openais_shape(name, happens, status, code):
    async def story():
        room = Room()
        if happens == "passes":
            await room.one.use("c")
        _, task = await room.ask(name)
        if happens == "fails":
            await room.one.failed(name)
        if happens == "passes":
            await room.one.passes(60)
        error = error_of(task)
        assert (error.status, error.code) == (status, code)
        assert (error.retry_after is not None) == (code == "models_busy")

    played(story())


@given(st.lists(st.sampled_from(["ask", "leave", "loaded", "cancel", "tick"]), max_size=20))
def test_whatever_comes_together_pins_are_those_of_the_callers(moves):
    async def story():
        room, asked = Room(most=100), []
        for move in moves:
            match move:
                case "ask":
                    client = Client()
                    task = asyncio.create_task(room.waiting.pin("a", client.receive))
                    asked.append((client, task))
                case "leave":
                    [client.leave() for client, task in asked[:1]]
                case "cancel":
                    [task.cancel() for client, task in asked[-1:]]
                case "loaded":
                    [room.one.loader.loaded(name) for name in {*room.one.loader.loading}
                     if not room.one.loader.loading[name].done()]  # fmt: skip
                case "tick":
                    await asyncio.sleep(0)
        await room.one.settle()
        for name in [*room.one.loader.loading]:
            await room.one.loaded(name)
        assert all(task.done() for _, task in asked)
        entries = [task.result() for _, task in asked if not task.cancelled()]
        assert room.num_pins == len([entry for entry in entries if entry is not None])
        assert not room.waiting.count.total() and not room.waiting.tasks

    played(story())
