"""What a request must pass before any route sees it: size, kind, host, key. Plain ASGI."""

import asyncio
import hmac
import ipaddress
import logging
from collections.abc import Callable
from contextlib import suppress

from starlette.exceptions import HTTPException

from labkit.serving.errors import APIError

MOST_BYTES = 2 * 1024 * 1024  # of a body
MOST_DRAINED = 256 * 1024 * 1024  # of a body that is too large, read so that its sender hears why
DRAIN_S = 5.0  # and for so long
TOO_LARGE = f"the body is larger than {MOST_BYTES:,} bytes; send less at once"
OPEN_PATHS = ("/", "/health", "/ready", "/openapi.json", "/favicon.ico")
CLOSE = {"connection": "close"}  # what comes next can't be told from a body
log = logging.getLogger("labkit.server")
JSON_PATHS = ("/v1/completions", "/v1/chat/completions")


class Guards:
    """Refuses what no route should have to look at.

    `api_key` is compared in constant time. Without one, a server on this machine only answers
    requests for this machine: a page of another host, opened in a browser here, could otherwise
    have its own name point here and read the answers (DNS rebinding).
    """

    def __init__(
        self, app, api_key: str | None = None, local_only: bool = True,
        write_timeout: float = 30.0, on_refusal: Callable[[int], None] = lambda status: None,
    ):  # fmt: skip
        self.app, self.local_only = app, local_only and not api_key
        self.write_timeout, self.on_refusal = write_timeout, on_refusal
        self.key = api_key and api_key.encode()

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        headers, send = dict(scope["headers"]), self.watched(scope, send)
        error = self.refusal(scope, headers)
        if error is None and length(headers) > MOST_BYTES:
            error = APIError(413, TOO_LARGE, "body")
        if error is None:
            return await self.pass_on(scope, Bounded(receive, self.write_timeout), headers, send)
        response = error.response()
        # Who expects a 100 waits to hear whether to send at all, and may not.
        response.headers.update(CLOSE if b"expect" in headers else await drain(receive))
        await response(scope, receive, send)

    async def pass_on(self, scope, body: "Bounded", headers: dict[bytes, bytes], send) -> None:
        """To the app. A mistake in it that it doesn't answer itself is answered here; and a
        refusal of a request whose body it didn't read waits for that, or it would not be heard."""
        sends_body = {b"content-length", b"transfer-encoding"} & {*headers}

        async def send_after_body(message) -> None:
            refuses = message.get("status", 200) >= 400
            if refuses and sends_body and not body.is_over:
                body.is_over = True
                more = CLOSE if b"expect" in headers else await drain(body.receive)
                message["headers"] += [(k.encode(), v.encode()) for k, v in more.items()]
            await send(message)

        try:
            await self.app(scope, body, send_after_body)
        except Exception:
            if scope.get("labkit.has_begun"):
                raise
            log.exception("a request failed", extra={"path": scope["path"]})
            error = APIError(500, "the server failed on this request; its log says more")
            await error.response()(scope, body, send_after_body)

    def watched(self, scope, send):
        """`send`, which counts refusals, and cuts a connection whose client takes nothing."""

        async def send_in_time(message) -> None:
            scope["labkit.has_begun"] = True
            refused = message.get("status", 200) >= 400 and scope["path"] in JSON_PATHS
            if refused:
                self.on_refusal(message["status"])
            try:
                async with asyncio.timeout(self.write_timeout):
                    await send(message)
            except TimeoutError:
                if transport := scope.get("labkit.transport"):  # else others watch the socket
                    transport.abort()

        return send_in_time

    def refusal(self, scope, headers: dict[bytes, bytes]) -> APIError | None:
        path = scope["path"]
        if self.local_only and not is_local(headers.get(b"host", b"localhost").decode("latin-1")):
            told = "this server is for this machine; call it 127.0.0.1, or give it --api-key"
            return APIError(403, told, "Host")
        if self.key and path not in OPEN_PATHS and not path.startswith("/page/"):
            scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.key):
                told = "this key is not the one" if given else "a key is needed"
                told += ": the server was started with --api-key; send 'Authorization: Bearer KEY'"
                return APIError(401, told, code="invalid_api_key")
        kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
        if scope["method"] == "POST" and path in JSON_PATHS and not is_json(kind):
            told = f"the content type is {kind.decode('latin-1')!r}; send application/json"
            return APIError(415, told, "Content-Type")
        return None


def is_json(kind: bytes) -> bool:
    """What the framework reads as JSON."""
    main, _, sub = kind.partition(b"/")
    return main == b"application" and b"/" not in sub and sub.split(b"+")[-1] == b"json"


def length(headers: dict[bytes, bytes]) -> int:
    """How many bytes the headers promise; 0 where they don't, and `Bounded` counts what comes."""
    try:
        return int(headers[b"content-length"])
    except (KeyError, ValueError):
        return 0


def is_local(host: str) -> bool:
    """Whether a Host header names this machine, or an address: no name that points elsewhere."""
    name = host.rsplit("]", 1)[0].lstrip("[") if host.startswith("[") else host.rsplit(":", 1)[0]
    if name.lower() == "localhost" or name.lower().endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Bounded:
    """`receive`, which fails with status 413 once more than may be has come in, and with 408 when
    nothing of an unfinished body comes for `patience` seconds."""

    def __init__(self, receive, patience: float):
        self.receive, self.patience = receive, patience
        self.total, self.is_over = 0, False  # nothing more of it will come

    async def __call__(self):
        try:
            async with asyncio.timeout(None if self.is_over else self.patience):
                message = await self.receive()
        except TimeoutError:
            self.is_over = True
            told = f"nothing of the body came for {self.patience:g} s; send it without a pause"
            raise HTTPException(408, told, {"connection": "close"}) from None
        self.is_over = not message.get("more_body")
        self.total += len(message.get("body", b""))
        if self.total > MOST_BYTES:
            rest = {} if self.is_over else await drain(self.receive)
            self.is_over = True
            raise HTTPException(413, TOO_LARGE, rest)
        return message


async def drain(receive) -> dict[str, str]:
    """Reads the rest of a body and forgets it: who is still sending would not hear the answer.

    Returns headers for the answer: the connection is of no more use when the end didn't come.
    """
    drained = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while drained < MOST_DRAINED:
                message = await receive()
                drained += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body"):
                    return {}
    return CLOSE
