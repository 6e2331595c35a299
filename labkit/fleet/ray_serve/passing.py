"""From a client to a replica and back: whom to ask, and what to do when it is lost.

Chunks go through as they come, unread. When a replica is lost before anything of an answer has
been sent, another one is asked; later the stream ends with an error event. The streams of other
replicas notice nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing, contextmanager, suppress

import msgspec
from fastapi.responses import Response

from labkit.fleet.ray_serve.about import About
from labkit.fleet.ray_serve.inward import Call, Head
from labkit.serving.answers import event
from labkit.serving.errors import UNREADABLE, APIError
from labkit.serving.streams import gone

TRIES = 3  # replicas that a request is given to, one after the other
WAIT_S = 30.0  # for a replica that takes a request
LOOK_S = 5.0  # for what all replicas are asked
WHO_SPEAKS = b'"role":"assistant"'  # stands in a chat's first event; inside a text it is escaped
log = logging.getLogger("labkit.server")


class ReplicaLost(RuntimeError):
    """The replica that had the request is gone."""


class Replicas:
    """All replicas, through Ray's `handle`; which one is meant its router decides."""

    def __init__(self, handle):
        self.handle = handle
        self.num_open, self.draining = 0, False  # requests under way; nothing new is taken

    @contextmanager
    def counted(self):
        """A request is under way for as long as this lasts. Raises APIError near the end."""
        if self.draining:
            raise APIError(503, "the server is shutting down", code="draining", retry_after=5)
        self.num_open += 1
        try:
            yield
        finally:
            self.num_open -= 1

    async def drain(self, timeout: float) -> None:
        """Takes nothing new, and waits for what is under way, up to `timeout` seconds."""
        self.draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                while self.num_open:
                    await asyncio.sleep(0.02)

    async def stream(self, call: Call, model: str, about: About) -> AsyncIterator:
        """A replica's name, a `Head` and bytes. Raises ReplicaLost, APIError."""
        from ray.exceptions import RayActorError, RayError
        from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

        streaming = self.handle.options(stream=True, multiplexed_model_id=model)
        answer = streaming.stream.remote(call, model, about=about)
        try:
            async with asyncio.timeout(WAIT_S):
                name = await anext(answer)
            yield name
            async for part in answer:
                yield part
        except RayActorError as error:
            raise ReplicaLost(first_line(error)) from None
        except (TimeoutError, BackPressureError, DeploymentUnavailableError):
            told = f"no replica took the request within {WAIT_S:g} s; try again"
            raise APIError(503, told, code="no_replica", retry_after=5) from None
        except RayError as error:  # what a replica raised: a model that can't be loaded, say
            log.error("a replica failed on a request", exc_info=error)
            told = "the replica failed on this request; the server's log says more"
            raise APIError(500, told, code="replica_failed") from None
        finally:
            answer.cancel()

    async def all(self, call: Call) -> list[tuple[str, int, bytes]]:
        """The name, status and body of each replica's models. Who is silent is left out."""
        asked = self.handle.broadcast("whole", call)
        # The public `results_async` gives nothing at all when one replica is silent.
        each = await asked._fetch_replica_results_async()
        answers = (asyncio.wait_for(one.get_async(), LOOK_S) for one in each)
        results = await asyncio.gather(*answers, return_exceptions=True)
        return [one for found in results if isinstance(found, list) for one in found]


class PassedOn(Response):
    """The answer of a replica. It is asked to stop when the client leaves."""

    def __init__(self, replicas: Replicas, call: Call, model: str, about: About):
        self.replicas, self.call, self.background = replicas, call, None
        self.model, self.about = model, about

    async def __call__(self, scope, receive, send) -> None:
        with self.replicas.counted():
            await self.until_it_leaves(receive, send)

    async def until_it_leaves(self, receive, send) -> None:
        answering = asyncio.create_task(self.answer(send))
        leaving = asyncio.create_task(gone(receive))
        try:
            await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.wait({answering, leaving})

    async def answer(self, send) -> None:
        is_stream = wants_stream(self.call.body)
        for attempt in range(1, TRIES + 1):
            passing = Passing(send, is_stream)
            try:
                found = self.replicas.stream(self.call, self.model, self.about)
                async with aclosing(found) as parts:
                    return await passing.through(parts)
            except APIError as error:
                return await passing.fail(error)
            except ReplicaLost as error:
                log.error("a replica is lost", extra={"replica": passing.name, "why": str(error)})
                told = f"replica {passing.name} was lost with the request; try again"
                lost = APIError(503, told, code="replica_lost", retry_after=1)
                if passing.has_sent or attempt == TRIES:
                    return await passing.fail(lost)


class Passing:
    """One answer on its way to a client.

    Its head, and the event that only says who speaks, wait for what comes after them: until then
    another replica can take over, and nobody notices.
    """

    def __init__(self, send, is_stream: bool):
        self.send, self.is_stream, self.has_sent, self.name = send, is_stream, False, "?"
        self.held: list[dict] = []

    async def through(self, parts: AsyncIterator) -> None:
        self.name = await anext(parts)
        async for part in parts:
            self.held.append(part_of(part, self.name))
            if self.has_sent or says_something(part):
                await self.flush()
        await self.flush()
        await self.send(body_of(b"", more=False))

    async def flush(self) -> None:
        self.has_sent = True
        for message in self.held:
            await self.send(message)
        self.held.clear()

    async def fail(self, error: APIError) -> None:
        """Says why there is no answer, or why it ends here."""
        if self.has_sent:
            return await self.send(body_of(event(error.body()) if self.is_stream else b"", False))
        response = error.response()
        await self.send(start_of(error.status, response.raw_headers))
        await self.send(body_of(response.body, more=False))


def says_something(part: Head | bytes) -> bool:
    """Whether there is more in it than who speaks."""
    if isinstance(part, Head):
        return False
    return not all(WHO_SPEAKS in event for event in part.rstrip().split(b"\n\n"))


def part_of(part: Head | bytes, name: str) -> dict:
    if not isinstance(part, Head):
        return body_of(part)
    headers = [pair for pair in part.headers if pair[0] != b"x-request-id"]  # Ray puts one in
    return start_of(part.status, [*headers, (b"x-labkit-replica", name.encode())])


def start_of(status: int, headers: list) -> dict:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body_of(content: bytes, more: bool = True) -> dict:
    return {"type": "http.response.body", "body": content, "more_body": more}


def wants_stream(body: bytes) -> bool:
    try:
        return bool(msgspec.json.decode(body).get("stream"))
    except (*UNREADABLE, AttributeError):
        return False


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
