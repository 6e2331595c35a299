"""The router as an ASGI app: which path is answered by whom. In front of it stand `Guards`."""

import asyncio

import aiohttp
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException

from labkit.fleet.router.backends import Dispatcher
from labkit.fleet.router.merged import Merged
from labkit.fleet.router.metrics import RouterMetrics
from labkit.fleet.router.proxy import Proxy, refuse
from labkit.serving.errors import APIError

KEEP_ALIVE_S = 2.0  # below the 5 s after which servers close an idle connection
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
ABOUT = """This is a router in front of OpenAI servers: use it as if it were one of them.
GET /health shows its replicas, /v1/models and /v1/requests what they have, /metrics its figures.
"""
MODELS, REQUESTS = "/v1/models", "/v1/requests"


def client_session() -> aiohttp.ClientSession:
    """The client to the replicas: as many connections as there are streams, bytes as they are.
    It waits as long as each request says."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
        timeout=aiohttp.ClientTimeout(total=None),
        cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False,
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
    )  # fmt: skip


class RouterApp:
    """POST /v1/... goes to a replica, lists are of all, /health and /metrics are the router's."""

    def __init__(
        self, dispatcher: Dispatcher, session: aiohttp.ClientSession, retries: int = 1,
        session_header: str = "x-session-id",
    ):  # fmt: skip
        self.dispatcher, self.metrics = dispatcher, RouterMetrics()
        self.proxy = Proxy(dispatcher, session, self.metrics, retries, session_header)
        self.merged = Merged(dispatcher, session, self.proxy.owners.get)
        self.draining = False

    @property
    def num_open(self) -> int:
        return len(self.proxy.flights)

    def note_refusal(self, status: int) -> None:
        """`Guards` tells of every request for a completion that gets an error."""
        self.metrics.failed(status)

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            return
        try:
            if ".." in scope["path"].split("/"):  # decoded: it may lead out of /v1 there
                raise APIError(404, "'..' is no part of a path here; write the path without it")
            if scope["method"] == "POST" and scope["path"].startswith("/v1/"):
                if self.draining:
                    raise APIError(503, "the router is shutting down", code="draining",
                                   retry_after=5)  # fmt: skip
                await self.proxy(scope, receive, send)
                return
            response = await self.view(scope)
            await response(scope, receive, send)
        except APIError as error:
            await refuse(error, scope, send)
        except HTTPException as error:  # of `Guards`: a body that is too large, or never ends
            await refuse(APIError(error.status_code, str(error.detail)), scope, send,
                         [(b"connection", b"close")])  # fmt: skip

    async def view(self, scope) -> Response:
        """What is read. Raises APIError."""
        verb, path = scope["method"], scope["path"]
        if verb == "DELETE" and path.startswith(f"{REQUESTS}/"):
            return await self.merged.request(scope, path.removeprefix(f"{REQUESTS}/"))
        if verb != "GET":
            told = f"{verb} is not for {path} here; POST /v1/... and DELETE {REQUESTS}/ID are"
            raise APIError(405, told)
        if path in ("/health", "/ready"):
            return self.merged.health(self.draining, self.num_open)
        if path == "/metrics":
            return Response(self.metrics.text(self.dispatcher.backends), media_type=PLAIN)
        if path == MODELS:
            return await self.merged.models(scope)
        if path.startswith(f"{MODELS}/"):
            return await self.merged.model(scope, path.removeprefix(f"{MODELS}/"))
        if path == REQUESTS:
            return await self.merged.requests(scope)
        if path.startswith(f"{REQUESTS}/"):
            return await self.merged.request(scope, path.removeprefix(f"{REQUESTS}/"))
        if path == "/":
            return PlainTextResponse(ABOUT)
        told = f"the router has no {path}; it has {MODELS}, {REQUESTS}, /health and /metrics"
        raise APIError(404, f"{told}, and sends POST /v1/... to a replica")

    async def drain(self, timeout: float) -> None:
        """Refuses what comes, lets finish what is open; ends what takes longer than `timeout`."""
        self.draining = True
        last = asyncio.get_running_loop().time() + timeout
        while self.num_open and asyncio.get_running_loop().time() < last:
            await asyncio.sleep(0.02)
        for flight in [*self.proxy.flights]:
            flight.stop("the router is shutting down")
        while self.num_open and asyncio.get_running_loop().time() < last + 1:
            await asyncio.sleep(0.02)  # last words
