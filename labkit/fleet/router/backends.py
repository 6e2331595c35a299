"""The replicas behind a router, and which of them gets a request: no sockets, time is told.

Three things leave a replica out: health checks that it doesn't pass, a breaker that is open, and
a model that it doesn't have.
"""

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from yarl import URL

from labkit.fleet.breaker import Breaker
from labkit.fleet.routing import Replica, Router

NO_ANSWER = (502, 504)  # what stands before a replica says so of it: a loss, as if by silence


class UnknownModel(LookupError):
    """No replica has the model that is asked for."""


@dataclass(frozen=True)
class Timeouts:
    """Seconds that a replica may take: each has an option, and a replica may have its own."""

    connect: float = 2.0
    first_byte: float = 60.0  # of a streamed answer
    between_bytes: float = 60.0
    whole_answer: float = 600.0  # to the first byte of one that isn't streamed: it's made by then


@dataclass(eq=False)
class Backend:
    """A replica over HTTP. `models` is None until it has told them: it may have any."""

    url: str
    replica: Replica
    breaker: Breaker = field(default_factory=Breaker)
    timeouts: Timeouts = Timeouts()
    is_up: bool = True  # as its health checks say
    detail: str = "not asked yet"
    models: frozenset[str] | None = None
    flights: set = field(default_factory=set)  # requests that wait for its first byte

    @property
    def name(self) -> str:
        return self.replica.name

    def url_of(self, scope) -> URL:
        """The same path and query there, byte for byte."""
        query = scope["query_string"]
        path = scope["raw_path"] + (b"?" + query if query else b"")
        return URL(self.url + path.decode("latin-1"), encoded=True)

    def has(self, model: str | None) -> bool:
        return model is None or self.models is None or model in self.models

    def may_get(self, model: str | None, now: float) -> bool:
        return self.is_up and self.has(model) and self.breaker.state(now) != "open"


def model_of(asked) -> str | None:
    """The model that a request names, if it names one."""
    return getattr(asked, "body", None) and asked.body.model


@dataclass(eq=False)
class Trip:
    """A request at a replica, from dispatch to its end."""

    asked: object
    backend: Backend
    is_probe: bool  # its breaker waits to hear of this one, and hasn't yet
    is_lost: bool = False
    has_answer: bool = False  # its first bytes, from a replica that lives
    is_open: bool = True


class Dispatcher:
    """Chooses by a policy of `routing`, among those that may be asked; keeps loads and breakers."""

    def __init__(
        self, backends: Sequence[Backend], policy: Router,
        clock: Callable[[], float] = time.monotonic,
    ):  # fmt: skip
        self.backends, self.policy, self.clock = backends, policy, clock
        self.replicas = [backend.replica for backend in backends]

    def begin(self, asked, tried: Collection[Backend] = ()) -> Trip:
        """Chooses a replica that isn't among `tried`; it has the request from now on.

        Raises UnknownModel, or NoReplica when none may be asked at the moment.
        """
        now, model = self.clock(), model_of(asked)
        if not any(backend.has(model) for backend in self.backends):
            raise UnknownModel(model)
        for backend in self.backends:
            backend.replica.healthy = backend.may_get(model, now) and backend not in tried
        while True:
            backend = self.backends[self.policy.choose(asked, self.replicas)]
            if backend.breaker.allows(now):
                break
            backend.replica.healthy = False  # another request is its probe
        self.policy.dispatched(asked, backend.replica)
        return Trip(asked, backend, is_probe=backend.breaker.is_open)

    def has_other(self, asked, tried: Collection[Backend]) -> bool:
        """Whether another would get it, however many ask: a half-open breaker lets one through."""
        now, model = self.clock(), model_of(asked)
        return any(
            one.may_get(model, now) and not one.breaker.is_open and one not in tried
            for one in self.backends
        )

    def answered(self, trip: Trip) -> None:
        """The head of an answer came. One that refuses it, or fails at it, lives: a model that
        can't be loaded must not cost the replica's others. After a probe's others may come."""
        trip.has_answer = True
        if trip.is_probe:
            self._judge(trip, trip.backend.breaker.began)

    def lost(self, trip: Trip) -> None:
        """The replica gave no answer, or broke off in one. Telling it twice changes nothing."""
        if not trip.is_lost:
            trip.is_lost = True
            self._judge(trip, trip.backend.breaker.failed)

    def ended(self, trip: Trip) -> None:
        """The request is over there, for whatever reason. Telling it twice changes nothing.

        Only now it is a success: a replica that begins every answer and breaks it off has none.
        """
        if not trip.is_open:
            return
        trip.is_open = False
        if trip.has_answer and not trip.is_lost:
            self._judge(trip, trip.backend.breaker.succeeded)
        elif trip.is_probe:
            self._judge(trip, trip.backend.breaker.cancelled)
        self.policy.finished(trip.asked, trip.backend.replica)

    def _judge(self, trip: Trip, verdict: Callable[[float], None]) -> None:
        """An open breaker hears of its probe only, and once: others were sent before it opened,
        and would end a probe that isn't theirs."""
        if trip.is_probe or not trip.backend.breaker.is_open:
            verdict(self.clock())
        trip.is_probe = False

    def why_nobody(self, asked) -> str:
        """What each replica lacks, for the client's error."""
        told = "; ".join(f"{one.name}: {self.why_not(one, asked)}" for one in self.backends)
        return f"no replica can be asked now ({told}); try again, or see GET /health"

    def why_not(self, backend: Backend, asked) -> str:
        if not backend.has(model_of(asked)):
            return "it doesn't have the model"
        state = backend.breaker.state(self.clock())
        return f"its breaker is {state}" if backend.is_up else backend.detail
