"""Calls an ASGI app in the same process: no socket, no HTTP to write and parse again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field

MOST_CHUNKS = 16  # made and not taken yet; then the app waits, as it would for a slow client
LAST_WORDS_S = 5.0  # for what an app does when its client has left


@dataclass(frozen=True)
class Call:
    """A request as an app sees it."""

    method: str
    path: str
    body: bytes = b""
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    client: tuple[str, int] | None = None

    def scope(self) -> dict:
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "method": self.method, "path": self.path, "raw_path": self.path.encode(),
            "query_string": b"", "root_path": "", "headers": self.headers, "client": self.client,
            "server": None,
        }  # fmt: skip


@dataclass(frozen=True)
class Head:
    """The beginning of an answer; its body follows."""

    status: int
    headers: list[tuple[bytes, bytes]]


async def ask(app, call: Call) -> AsyncIterator[Head | bytes]:
    """The answer of `app`: its head, then its body as it comes, in one piece what came meanwhile.

    Who stops reading, or is cancelled, is a client that has left: the app is told so
    (`http.disconnect`). What the app raises is raised here.
    """
    answer: asyncio.Queue = asyncio.Queue(MOST_CHUNKS)
    left, asked = asyncio.Event(), iter([call.body])

    async def receive() -> dict:
        for body in asked:
            return {"type": "http.request", "body": body, "more_body": False}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict | None) -> None:
        if not left.is_set():
            await answer.put(message)

    async def run() -> None:
        try:
            await app(call.scope(), receive, send)
        finally:
            await send(None)

    running = asyncio.create_task(run())
    try:
        is_over = False
        while not is_over:
            messages = [await answer.get()]
            while not answer.empty():  # whatever has piled up goes out as one
                messages.append(answer.get_nowait())
            is_over = messages[-1] is None
            for message in messages:
                if message and message["type"] == "http.response.start":
                    yield Head(message["status"], [*message.get("headers", [])])
            if body := b"".join(message.get("body", b"") for message in messages if message):
                yield body
        await running
    finally:
        left.set()
        while not answer.empty():  # a writer may wait for room
            answer.get_nowait()
        with suppress(Exception):
            await asyncio.wait_for(running, LAST_WORDS_S)
