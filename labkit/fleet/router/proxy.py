"""Requests to replicas, answers back: tries another replica until the first byte, not after."""

import asyncio
import logging
from collections import OrderedDict

import aiohttp

from labkit.fleet.router import asked as reading
from labkit.fleet.router import failures, headers
from labkit.fleet.router.backends import NO_ANSWER, Backend, Dispatcher, Trip, UnknownModel
from labkit.fleet.router.failures import RETRY_AFTER_S, Failure, refuse, request_id_of
from labkit.fleet.router.flight import Ended, Flight, WholeEvents
from labkit.fleet.router.metrics import RouterMetrics
from labkit.fleet.router.replies import BadAnswer, StreamEnd, check_status, short_body
from labkit.fleet.routing import NoReplica
from labkit.serving.answers import event
from labkit.serving.bodies import MOST_LABEL
from labkit.serving.errors import APIError
from labkit.serving.streams import gone, whole_body

REFUSALS = (429, 503)  # "not now": another replica may
ENGINE_DIED = (b'"engine_failed"', b'"replica_lost"')  # a 503 of labkit that isn't "not now"
MOST_OWNERS = 100_000  # requests whose replica is remembered
log = logging.getLogger("labkit.router")
LOSSES = (aiohttp.ClientError, OSError, TimeoutError, Ended, BadAnswer)


class Proxy:
    """Passes requests on. `session` is an aiohttp client that limits nothing by itself."""

    def __init__(
        self, dispatcher: Dispatcher, session: aiohttp.ClientSession, metrics: RouterMetrics,
        retries: int = 1, session_header: str = "x-session-id",
    ):  # fmt: skip
        self.dispatcher, self.session, self.metrics = dispatcher, session, metrics
        self.retries, self.session_header = retries, session_header.lower().encode()
        self.flights: set[Flight] = set()
        self.owners: OrderedDict[str, Backend] = OrderedDict()  # the replica's id of a request

    async def __call__(self, scope, receive, send) -> None:
        """One request. The client may leave at any time; the replica hears of it at once."""
        payload = await whole_body(receive)  # a replica that is lost must not cost it
        if payload is None:
            return
        given = dict(scope["headers"])
        asked = reading.read(scope["path"], given, payload, self.session_header)
        flight = Flight()
        self.flights.add(flight)
        watching = asyncio.create_task(watch(receive, flight))
        try:
            await self.answer(flight, asked, payload, scope, send)
        finally:
            watching.cancel()
            self.flights.discard(flight)

    async def answer(self, flight: Flight, asked, payload: bytes, scope, send) -> None:
        """Tries replicas, each once, until one begins to answer, or none is left to try."""
        tried: list[Backend] = []
        failure, num_lost = None, 0

        def may_move() -> bool:
            is_allowed = asked.may_repeat and num_lost < self.retries
            return is_allowed and self.dispatcher.has_other(asked, tried)

        flight.may_move = may_move
        while num_lost <= self.retries and not flight.has_left:
            try:
                trip = self.dispatcher.begin(asked, tried)
            except UnknownModel:
                await refuse(failures.unknown_model(asked), scope, send)
                return
            except NoReplica:
                failure = failure or Failure(self.nobody(asked), was_sent=False)
                break
            if tried:
                self.metrics.retried(trip.backend.name)
            tried.append(trip.backend)
            failure = await self.attempt(flight, trip, payload, scope, send)
            if failure is None or flight.over:
                break
            if failure.was_sent:
                num_lost += 1
                if not asked.may_repeat:
                    break
        if failure is not None and not flight.has_left:
            await self.give_up(failure, tried, scope, send)

    async def attempt(self, flight, trip: Trip, payload: bytes, scope, send) -> Failure | None:
        """Asks one replica. None when the client has been sent something, else what went wrong."""
        backend, patience = trip.backend, trip.backend.timeouts
        first = patience.first_byte if trip.asked.stream else patience.whole_answer
        flight.has_begun = False
        backend.flights.add(flight)
        try:
            async with flight.within(first):
                return await self.exchange(flight, trip, payload, scope, send)
        except LOSSES as error:
            if not flight.over:
                self.dispatcher.lost(trip)
                self.metrics.lost(backend.name)
                log_loss(error, flight, backend, scope)
            if not flight.has_begun:
                return failures.failure_of(error, flight, backend)
            await self.break_off(error, flight, backend, scope, send)
            return None
        finally:
            backend.flights.discard(flight)
            self.dispatcher.ended(trip)

    async def exchange(self, flight, trip: Trip, payload: bytes, scope, send) -> Failure | None:
        """The request out, the answer in: nothing goes to the client before its first byte."""
        backend, request_id = trip.backend, request_id_of(scope)
        connect = aiohttp.ClientTimeout(total=None, sock_connect=backend.timeouts.connect)
        sent = self.dispatcher.clock()
        async with self.session.request(
            scope["method"], backend.url_of(scope), data=payload,
            headers=headers.to_replica(scope["headers"], request_id), allow_redirects=False,
            timeout=connect,
        ) as response:  # fmt: skip
            check_status(response)
            if response.status in NO_ANSWER:
                raise BadAnswer(f"what stands before it answers {response.status}")
            if response.status in REFUSALS:
                return await self.refused(trip, response, request_id)
            end = StreamEnd(response) if is_events(response) else None
            data = await response.content.readany()
            self.dispatcher.answered(trip)
            self.metrics.first_byte(backend.name, response.status, self.dispatcher.clock() - sent)
            backend.flights.discard(flight)
            told = headers.to_client(response.raw_headers, backend.name, request_id)
            self.remember(response, backend)
            flight.has_first_byte(backend.timeouts.between_bytes)
            flight.has_begun, flight.is_stream = True, end is not None
            await send({"type": "http.response.start", "status": response.status, "headers": told})
            await self.pass_on(flight, response.content.readany, data, send, end)
        return None

    async def pass_on(self, flight: Flight, read, data: bytes, send, end) -> None:
        """Bytes as they come. A client that reads slowly slows the replica, and no one else."""
        events, last, now = WholeEvents(), b"", asyncio.get_running_loop().time
        while data:
            if ready := events.take(data) if flight.is_stream else data:
                await send({"type": "http.response.body", "body": ready, "more_body": True})
                last = ready
            flight.silent_since = now()
            data = await read()
            flight.silent_since = None
        if end is not None:
            end.check(last, events.held)
        await send({"type": "http.response.body", "body": events.held, "more_body": False})

    async def refused(self, trip: Trip, response, request_id: bytes) -> Failure:
        """The replica takes nothing now; what it said goes to the client if all others do so.

        Unless its engine had the request and died. That may be the request's doing: to ask
        everybody in turn could be the end of them all, so it counts as an attempt that was lost.
        """
        self.dispatcher.answered(trip)
        self.metrics.refused(trip.backend.name, response.status)
        body = await short_body(response)
        told = headers.to_client(response.raw_headers, trip.backend.name, request_id)
        says = f"replica {trip.backend.name} refuses; try again"
        error = APIError(response.status, says, retry_after=RETRY_AFTER_S)
        refusal = None if body is None else (response.status, told, body)
        was_sent = body is not None and any(code in body for code in ENGINE_DIED)
        return Failure(error, was_sent, refusal)

    async def break_off(self, error: Exception, flight: Flight, backend, scope, send) -> None:
        """After the first byte there is no other replica: the client is told, and it ends."""
        if flight.has_left:
            return
        if not flight.is_stream:  # of one JSON object a part has gone out: it can't be mended
            scope["labkit.transport"].abort()
            return
        body = event(failures.broken_off(error, backend).body())
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def give_up(self, failure: Failure, tried: list[Backend], scope, send) -> None:
        if failure.refusal is None:
            names = b", ".join(backend.name.encode() for backend in tried)
            more = [(headers.REPLICA, names)] if tried else []
            await refuse(failure.error, scope, send, more)
            return
        status, told, body = failure.refusal
        await send({"type": "http.response.start", "status": status, "headers": told})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    def remember(self, response, backend: Backend) -> None:
        """Whose request it is, for those who cancel it. By the replica's own name for it only: of
        one that it refuses it knows nothing, and a client's name may be long, or another's."""
        request_id = response.headers.get("x-request-id", "")
        if response.status >= 400 or not 0 < len(request_id) <= MOST_LABEL:
            return
        self.owners[request_id] = backend
        if len(self.owners) > MOST_OWNERS:
            self.owners.popitem(last=False)

    def nobody(self, asked) -> APIError:
        told = self.dispatcher.why_nobody(asked)
        return APIError(503, told, code="no_replica", retry_after=RETRY_AFTER_S)


async def watch(receive, flight: Flight) -> None:
    await gone(receive)
    flight.leave()


def log_loss(error: Exception, flight: Flight, backend: Backend, scope) -> None:
    told = {
        "request_id": request_id_of(scope).decode("latin-1"), "replica": backend.name,
        "reason": str(error) or type(error).__name__, "had_begun": flight.has_begun,
    }  # fmt: skip
    log.warning("a replica lost a request", extra=told)


def is_events(response) -> bool:
    """Whether an answer is server-sent events that can be told apart: not compressed ones."""
    coded = response.headers.get("content-encoding", "identity")
    return response.content_type == "text/event-stream" and coded == "identity"
