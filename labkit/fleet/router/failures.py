"""How a request fails at the router, and how its client is told: in OpenAI's shape."""

import secrets
from dataclasses import dataclass

import aiohttp

from labkit.fleet.router import headers
from labkit.fleet.router.backends import Backend
from labkit.fleet.router.flight import Ended, Flight
from labkit.serving.errors import APIError

RETRY_AFTER_S = 1
REASONS = (  # the first that fits
    (aiohttp.ClientConnectorError, "it takes no connection"),
    (aiohttp.ConnectionTimeoutError, "it takes no connection in time"),
    (aiohttp.ServerTimeoutError, "it is too slow"),
    (aiohttp.ServerDisconnectedError, "it closed the connection"),
    (aiohttp.ClientResponseError, "its answer is no HTTP"),
    (aiohttp.ClientPayloadError, "its answer isn't whole"),
    (OSError, "the connection broke"),
)


@dataclass
class Failure:
    """Why a replica gave no answer. `refusal` is what it said, to be passed on if all fail."""

    error: APIError
    was_sent: bool  # the replica may have begun on it
    refusal: tuple[int, headers.Headers, bytes] | None = None


def broken_off(error: Exception, backend: Backend) -> APIError:
    """The last event of a stream whose replica was lost."""
    told = f"the answer broke off at replica {backend.name}: {reason(error)}; send it again"
    return APIError(502, told, code="replica_lost")


async def refuse(error: APIError, scope, send, more: headers.Headers = ()) -> None:
    response = error.response()
    response.raw_headers += [(b"x-request-id", request_id_of(scope)), *more]
    await response(scope, None, send)


def request_id_of(scope) -> bytes:
    """The client's own, else one made here, the same for all attempts."""
    if "labkit.request_id" not in scope:
        given = dict(scope["headers"]).get(b"x-request-id")
        scope["labkit.request_id"] = given or f"route-{secrets.token_hex(12)}".encode()
    return scope["labkit.request_id"]


def failure_of(error: Exception, flight: Flight, backend: Backend) -> Failure:
    """What a client is told of a replica that gave nothing, if no other can be asked."""
    if flight.over:
        draining = APIError(503, flight.over, code="draining", retry_after=RETRY_AFTER_S)
        return Failure(draining, was_sent=True)
    was_sent = not isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    is_late = isinstance(error, TimeoutError | Ended)
    told = f"replica {backend.name} gives no answer: {reason(error)}; try again"
    code = "replica_timeout" if is_late else "replica_lost"
    return Failure(APIError(504 if is_late else 502, told, code=code), was_sent)


def reason(error: Exception) -> str:
    """What went wrong, for clients: the library's own text has addresses and the replica's raw
    bytes, which are for the log."""
    if isinstance(error, aiohttp.ClientError | OSError):
        found = [told for kind, told in REASONS if isinstance(error, kind)]
        return found[0] if found else "the request can't be passed on"
    return str(error) or type(error).__name__


def unknown_model(asked) -> APIError:
    told = f"no replica has the model {asked.body.model!r}; GET /v1/models lists what there is"
    return APIError(404, told, "model", "model_not_found")
