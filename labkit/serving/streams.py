"""The two ways an answer goes out: at once when it is whole, or piece by piece as it is made."""

import asyncio
from abc import ABC, abstractmethod

from fastapi.responses import Response

from labkit.answers import Piece
from labkit.serving.answers import KEEP_ALIVE, Shapes, event
from labkit.serving.errors import JSON, APIError
from labkit.serving.lifecycle import Registry, Ticket

HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
RETRY_AFTER_S = {"draining": 5, "engine_failed": 1}
KEEP_ALIVE_S = 15.0  # a comment so often, while nothing comes: proxies cut silent connections


def failure_of(ticket: Ticket) -> APIError | None:
    """Why a ticket has no answer, as its client is told; None if it has one."""
    choice = ticket.failure
    if choice is None:
        return None
    reason, said = choice.output.finish_reason, choice.output.error
    if reason == "deadline":
        told = f"no token in time: {said}"
        return APIError(408, told, "deadline_ms", "deadline", may_retry=False)
    if reason == "abort":
        said = said or "the request was cancelled"
        return APIError(409, said, code="cancelled", may_retry=False)
    if ticket.code in RETRY_AFTER_S:
        return APIError(503, said, code=ticket.code, retry_after=RETRY_AFTER_S[ticket.code])
    return APIError(500, said or "the engine failed on this request", code="engine_error")


async def gone(receive) -> None:
    """Waits until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def whole_body(receive) -> bytes | None:
    """What a client sends; None if it leaves before the end. `Guards` refuses what is too large."""
    parts = []
    while (message := await receive())["type"] == "http.request":
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts)
    return None


class Answering(ABC, Response):
    """An answer that stops when its client leaves, wherever the request is then."""

    def __init__(self, ticket: Ticket, shapes: Shapes, registry: Registry):
        self.ticket, self.shapes, self.registry = ticket, shapes, registry
        self.background = None

    async def __call__(self, scope, receive, send) -> None:
        answering = asyncio.create_task(self.answer(scope, receive, send))
        leaving = asyncio.create_task(gone(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
            if self.ticket.dropped and "labkit.transport" in scope:
                await leaving  # its connection is cut, and the framework hears of it
        finally:
            for task in (answering, leaving):
                task.cancel()
            why = "another answer of it failed" if self.ticket.failure else "the client left"
            self.registry.end(self.ticket, "abort", why)
            self.ticket.forget_text()

    @abstractmethod
    async def answer(self, scope, receive, send) -> None:
        """Waits for the answer and sends it."""


class WholeAnswer(Answering):
    """One JSON object, when all is there."""

    async def answer(self, scope, receive, send) -> None:
        await self.ticket.finished()
        failure = failure_of(self.ticket)
        response = JSON(self.shapes.whole()) if failure is None else failure.response()
        response.headers["x-request-id"] = self.ticket.id
        await response(scope, receive, send)


class StreamedAnswer(Answering):
    """Server-sent events. A write that a client doesn't take for `write_timeout` seconds, or too
    many pieces waiting (`Registry.drop`), cut the connection."""

    def __init__(self, ticket: Ticket, shapes: Shapes, registry: Registry, write_timeout: float):
        super().__init__(ticket, shapes, registry)
        self.write_timeout = write_timeout

    async def answer(self, scope, receive, send) -> None:
        ticket, transport = self.ticket, scope.get("labkit.transport")
        if transport is not None:
            ticket.cut = transport.abort  # what is still to be sent is thrown away
        headers = [*HEADERS, (b"x-request-id", ticket.id.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await self.write(send, b"".join(self.shapes.opening()))
        while not ticket.dropped:
            pieces, is_last = await self.next_pieces()
            quiet = not pieces and not is_last
            await self.write(send, KEEP_ALIVE if quiet else self.events(pieces))
            if is_last:
                break
        failure = failure_of(ticket)
        last = self.shapes.closing() if failure is None else event(failure.body())
        await self.write(send, last)
        if not ticket.dropped:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def events(self, pieces: list[Piece]) -> bytes:
        return b"".join(map(self.shapes.piece, pieces))

    async def next_pieces(self) -> tuple[list[Piece], bool]:
        """What has been made, and whether it is the last; nothing after `KEEP_ALIVE_S`."""
        ticket = self.ticket
        try:
            async with asyncio.timeout(KEEP_ALIVE_S):
                await ticket.wake.wait()
        except TimeoutError:
            return [], False
        ticket.wake.clear()
        is_last, pieces = not ticket.is_open, [*ticket.pieces]
        ticket.pieces.clear()
        if ticket.failure is not None:  # it is told as an error, not as a piece, and at once
            is_last = True
            pieces = [piece for piece in pieces if not piece.finish_reason]
        return pieces, is_last

    async def write(self, send, body: bytes) -> None:
        if not body or self.ticket.dropped:
            return
        self.ticket.is_stuck = True  # seen by others only if the next line has to wait
        try:
            async with asyncio.timeout(self.write_timeout):
                await send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError:
            reason = f"its client took nothing for {self.write_timeout:g} s (--write-timeout)"
            self.registry.drop(self.ticket, reason)
        finally:
            self.ticket.is_stuck = False
