"""What a router reads of a replica's answer for itself: no more than it should be, and no less."""

from aiohttp import ClientResponse

MOST_REFUSAL = 64 * 1024  # bytes
MOST_LISTED = 4 * 1024 * 1024  # of a list: 200 bytes or so for each of its requests
WHOLE_ENDS = (b"", b"data: [DONE]")  # of a stream: an empty line may be missing after the last


class BadAnswer(Exception):
    """What a replica answered can't be passed on; the text says why."""


def check_status(response: ClientResponse) -> None:
    """Raises BadAnswer for a status that no answer to a client can have."""
    if not 200 <= response.status <= 599:
        raise BadAnswer(f"it answered with status {response.status}")


async def short_body(response: ClientResponse, most_bytes: int = MOST_REFUSAL) -> bytes | None:
    """The whole body; None, and no more is read, when it is longer than `most_bytes`."""
    found = b""
    while data := await response.content.readany():
        found += data
        if len(found) > most_bytes:
            response.close()
            return None
    return found


class StreamEnd:
    """Tells whether a stream of events has come to its end, or was cut.

    Without a length or chunks an answer ends with its connection, and the client library takes a
    reset for such an end: only the connection knows better.
    """

    def __init__(self, response: ClientResponse):
        told = response.headers
        has_length = "content-length" in told or "chunked" in told.get("transfer-encoding", "")
        connection = response.connection
        self.connection = None if has_length or connection is None else connection.protocol

    def check(self, last: bytes, held: bytes) -> None:
        """`last` was sent, `held` is what came of the next event. Raises BadAnswer."""
        if held.strip() not in WHOLE_ENDS:
            raise BadAnswer("it ended inside an event")
        if self.connection is None or b"[DONE]" in last[-32:] + held:
            return
        if isinstance(self.connection.exception(), OSError):
            raise BadAnswer("the connection was reset")
