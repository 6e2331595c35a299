"""Which headers a router passes on: those for the other end, not those for the next hop."""

from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]
REPLICA = b"x-labkit-replica"  # which replica answered

# For one connection only (RFC 9110, 7.6.1), with the old names that are still seen.
HOP_BY_HOP = {
    b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate",
    b"proxy-authorization", b"te", b"trailer", b"trailers", b"transfer-encoding", b"upgrade",
}  # fmt: skip
TO_REPLICA = HOP_BY_HOP | {b"host", b"content-length", b"expect"}  # the client library has its own
TO_CLIENT = HOP_BY_HOP | {b"date", REPLICA}  # the server's own, and not for others to say


def passed_on(headers: Iterable[tuple[bytes, bytes]], left_out: set[bytes]) -> Headers:
    """`headers` in small letters, without `left_out` and what Connection names besides."""
    given = [(name.lower(), value) for name, value in headers]
    named = b",".join(value for name, value in given if name == b"connection")
    left_out = left_out | {name.strip().lower() for name in named.split(b",")}
    return [(name, value) for name, value in given if name not in left_out]


def to_replica(headers: Iterable[tuple[bytes, bytes]], request_id: bytes) -> dict[str, str]:
    """A request's headers, its key among them; an id for the logs of both, if it has none."""
    found: dict[str, str] = {}
    for name, value in passed_on(headers, TO_REPLICA):
        told, text = name.decode("latin-1"), value.decode("utf-8", "replace")  # as it is sent
        found[told] = f"{found[told]}, {text}" if told in found else text
    found.setdefault("x-request-id", request_id.decode("utf-8", "replace"))
    return found


def to_client(headers: Iterable[tuple[bytes, bytes]], replica: str, request_id: bytes) -> Headers:
    """An answer's headers, with who answered. The id is the replica's own, by which it knows the
    request, else the one that it was sent with."""
    found = passed_on(headers, TO_CLIENT)
    if all(name != b"x-request-id" for name, _ in found):
        found.append((b"x-request-id", request_id))
    return [*found, (REPLICA, replica.encode())]
