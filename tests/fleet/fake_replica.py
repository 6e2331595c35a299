"""Replicas that do what a test wants, in the test's own event loop; and a client of an ASGI app.

`act` says what becomes of a request: "answer", "silent" (accepts, and never answers), "drop"
(the connection ends before an answer), "break" (in the middle of an event), "refuse" (429),
"loading" (503), "fail" (500), "half" (of a JSON object), "wait" (an event, then nothing until
`go` is set), "flood" (events without end), "big" (429, without end), "reset" (after an event,
without a length), or the bytes of the answer. `lists` has the bytes of other answers by path.
"""

import asyncio
import json
import socket
import struct
from contextlib import asynccontextmanager, suppress

from labkit.fleet.breaker import Breaker
from labkit.fleet.router.app import RouterApp, client_session
from labkit.fleet.router.backends import Backend, Dispatcher, Timeouts
from labkit.fleet.routing import Replica, RoundRobin

PATIENCE_S = 60  # no test is about time
HEAD = "HTTP/1.1 {}\r\ncontent-type: {}\r\nx-request-id: {}\r\nconnection: close\r\n{}\r\n"


def event(text):
    return b"data: " + json.dumps({"choices": [{"index": 0, "text": text}]}).encode() + b"\n\n"


class FakeReplica:
    def __init__(self, name, models=("m",)):
        self.name, self.models, self.act, self.health = name, models, "answer", 200
        self.api_key = None  # who asks for anything but /health has to send it
        self.asked = []  # (line, headers, body) of what was posted
        self.num_open, self.num_closed, self.num_written = 0, 0, 0
        self.go = asyncio.Event()
        self.lists = {}
        self.requests = {}  # id → state, of /v1/requests

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=2000)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        self.go.set()

    async def serve(self, reader, writer):
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *rest = head.strip().split("\r\n")
            headers = dict(one.split(": ", 1) for one in rest)
            headers = {name.lower(): value for name, value in headers.items()}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if line.startswith("POST"):
                await self.post(line, headers, body, reader, writer)
            else:
                await self.view(line, headers, reader, writer)
        writer.close()

    async def post(self, line, headers, body, reader, writer):
        self.asked.append((line, headers, body))
        self.num_open += 1
        gone = asyncio.create_task(reader.read())  # ends when the other side has gone
        acting = asyncio.create_task(self.answer(writer))
        await asyncio.wait({gone, acting}, return_when=asyncio.FIRST_COMPLETED)
        self.num_closed += gone.done()
        for task in (gone, acting):
            task.cancel()
        self.num_open -= 1

    async def answer(self, writer):
        def head(status, kind, more=""):
            writer.write(HEAD.format(status, kind, f"{self.name}-{len(self.asked)}", more).encode())

        act = self.act
        if isinstance(act, bytes):
            writer.write(act)
        elif act == "big":
            head("429 Too Many", "application/json")
            while self.num_written < 100_000_000:
                writer.write(b"x" * 10_000)
                self.num_written += 10_000
                await writer.drain()
        elif act == "reset":
            head("200 OK", "text/event-stream")
            writer.write(event("a"))
            await writer.drain()
            await self.go.wait()
            given = writer.get_extra_info("socket")
            given.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return
        elif act == "silent":
            await asyncio.Event().wait()
        elif act in ("refuse", "loading"):
            status = "429 Too Many" if act == "refuse" else "503 Not Now"
            head(status, "application/json", "retry-after: 7\r\n")
            writer.write(json.dumps({"error": {"message": f"{self.name} is full"}}).encode())
        elif act == "fail":
            head("500 Bad", "application/json")
            writer.write(b'{"error": {"message": "it failed"}}')
        elif act == "half":
            head("200 OK", "application/json", "content-length: 100\r\n")
            writer.write(b'{"choices": [')
        elif act != "drop":
            more = "x-more: kept\r\nkeep-alive: 5\r\ntransfer-encoding: chunked\r\n"
            head("200 OK", "text/event-stream", more)
            await self.stream(act, writer)
        await writer.drain()

    async def stream(self, act, writer):
        def chunk(data):
            writer.write(b"%x\r\n%s\r\n" % (len(data), data))

        chunk(event("a"))
        await writer.drain()
        if act == "wait":
            await self.go.wait()
        while act == "flood":
            chunk(event("b" * 10_000))
            self.num_written += 10_000
            await writer.drain()
        if act == "break":
            chunk(event("b")[:-9])
            return
        chunk(event("b") + b"data: [DONE]\n\n")
        chunk(b"")

    async def view(self, line, headers, reader, writer):
        path = line.split()[1]
        if path == "/health" and self.health is None:
            await reader.read()
        status, told = self.health, {"status": "so"}
        key = self.api_key and f"Bearer {self.api_key}"
        if path != "/health" and key and headers.get("authorization") != key:
            status, told = 401, {"error": {"message": "no key"}}
        elif path == "/v1/models":
            status, told = 200, {"object": "list", "data": [{"id": one} for one in self.models]}
        elif path == "/v1/requests":
            status, told = 200, {"data": [{"id": one} for one in self.requests], "mine": []}
        elif path.startswith("/v1/requests/"):
            known = path.rpartition("/")[2] in self.requests
            told = {"id": path.rpartition("/")[2], "cancelled": line.startswith("DELETE")}
            status, told = (200, told) if known else (404, {"error": {"message": "no"}})
        if path in self.lists:
            status = 200
        writer.write(HEAD.format(status or 200, "application/json", "x", "").encode())
        writer.write(self.lists.get(path) or json.dumps(told).encode())


@asynccontextmanager
async def routed(
    *names, policy=None, clock=None, models=("m",), timeouts=Timeouts(), **options  # noqa: B008
):
    """A router in front of fakes: (app, backends, fakes)."""
    fakes = [await FakeReplica(name, models).__aenter__() for name in names]
    backends = [Backend(one.url, Replica(one.name), Breaker(), timeouts) for one in fakes]
    dispatcher = Dispatcher(backends, policy or RoundRobin(), **({"clock": clock} if clock else {}))
    async with client_session() as session:
        app = RouterApp(dispatcher, session, **options)
        app.session = session
        try:
            yield app, backends, fakes
        finally:
            for flight in [*app.proxy.flights]:
                flight.leave()
            for one in fakes:
                await one.__aexit__()
    assert all(one.replica.load == (0, 0) for one in backends), "a request is still counted"


class Call:
    """One request to an ASGI app. It goes on by itself; `ended` waits for its end."""

    def __init__(
        self, app, path="/v1/completions", body=None, method="POST", headers=(), query=b""
    ):
        given = {"prompt": "hello", "max_tokens": 4, "stream": True} if body is None else body
        self.payload = given if isinstance(given, bytes) else json.dumps(given).encode()
        self.headers = [(b"content-type", b"application/json"), *headers]
        self.status, self.told, self.body = None, {}, b""
        self.is_whole, self.was_cut = False, False
        self.left, self.begun, self.slow = asyncio.Event(), asyncio.Event(), None
        self.scope = {
            "type": "http", "method": method, "path": path, "query_string": query,
            "raw_path": path.encode(),
            "headers": self.headers, "labkit.transport": self,
        }  # fmt: skip
        self.task = asyncio.create_task(app(self.scope, self.receive, self.send))

    async def receive(self):
        if self.payload is not None:
            body, self.payload = self.payload, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if self.slow is not None:
            await self.slow.wait()
        if message["type"] == "http.response.start":
            assert self.status is None, "two answers"
            self.status, self.raw = message["status"], message["headers"]
            self.told = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]
            self.is_whole = not message.get("more_body")
            self.begun.set()

    def abort(self):
        self.was_cut = True

    async def ended(self):
        await asyncio.wait_for(self.task, PATIENCE_S)
        return self

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def events(self):
        return [one.removeprefix("data: ") for one in self.body.decode().split("\n\n") if one]

    @property
    def replica(self):
        return self.told.get("x-labkit-replica")


async def get(app, path, method="GET"):
    return await Call(app, path, b"", method).ended()


async def until(found, what):
    async def look():
        while not found():
            await asyncio.sleep(0.005)

    try:
        await asyncio.wait_for(look(), PATIENCE_S)
    except TimeoutError:
        raise AssertionError(f"not within {PATIENCE_S} s: {what}") from None
