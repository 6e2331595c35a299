"""What attackers and hasty clients found: keys, bodies that stop, messages without their field."""

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest
import uvicorn
from uvicorn.server import ServerState

from labkit.console import SetupError
from labkit.fleet.router.options import parse as parse_route
from labkit.serving import protocol
from labkit.serving.errors import shown
from labkit.serving.guards import Guards
from labkit.serving.options import parse
from labkit.serving.server import listen


class Heard(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes
    unread: int


async def fine(scope, receive, send):
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def answer_of(
    app, path: str = "/v1/completions", method: str = "POST", parts: int = 1, **headers: str
):
    """What an app behind `Guards` with the key KEY answers: status, headers, body. The request
    has a body of so many parts; of those that were not read before the answer `unread` is left."""
    sent, left = [], [*range(parts)]

    async def receive():
        left.pop()
        return {"type": "http.request", "body": b"x", "more_body": bool(left)}

    async def send(message):
        sent.append(message | {"unread": len(left)})

    given = {"authorization": "Bearer KEY"} | headers
    given = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
    scope = {"type": "http", "path": path, "method": method, "headers": given}
    asyncio.run(Guards(app, "KEY")(scope, receive, send))
    return Heard(sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"], sent[0]["unread"])


def status_with(authorization: str) -> int:
    """What a guarded server with the key KEY answers to this header."""
    return answer_of(fine, "/v1/models", "GET", authorization=authorization).status


@pytest.mark.parametrize("header", ["Bearer KEY", "bearer KEY", "BEARER KEY", "Bearer  KEY"])
def test_the_schemes_case_and_spaces_do_not_matter(header):
    assert status_with(header) == 204


@pytest.mark.parametrize("header", ["Bearer key", "Basic KEY", "KEY", "Bearer", "", "Bearer KEYS"])
def test_the_keys_do(header):
    assert status_with(header) == 401


@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_is_no_key(key, capsys):
    with pytest.raises(SystemExit):
        parse(["--api-key", key])
    assert "--api-key is empty" in capsys.readouterr().err


@pytest.mark.parametrize("read, line", [(parse, []), (parse_route, ["--backend", "http://x:1"])])
def test_blanks_around_a_key_are_none_of_it(read, line, monkeypatch):
    """Of a file with a secret, say: they don't come through a header."""
    monkeypatch.setenv("LABKIT_API_KEY", " \n")
    assert read(line).api_key is None
    monkeypatch.setenv("LABKIT_API_KEY", "K\n")
    assert read(line).api_key == "K"
    assert read([*line, "--api-key", " L"]).api_key == "L"


@pytest.mark.parametrize("kind, status", [
    ("application/json", 204), ("application/problem+json; charset=utf-8", 204),
    ("text/json", 415), ("application/xjson", 415), ("json", 415), ("", 415),
])  # fmt: skip
def test_json_is_what_the_framework_reads_as_json(kind, status):
    assert answer_of(fine, content_type=kind).status == status


def test_who_waits_to_be_told_to_send_is_refused_for_the_whole_connection():
    """It may send its body all the same, or not: what comes next can't be told from it."""
    for more, closes in (({}, False), ({"expect": "100-continue"}, True)):
        heard = answer_of(fine, content_type="text/plain", **more)
        assert heard.status == 415 and (heard.headers.get(b"connection") == b"close") is closes


def test_a_mistake_of_ours_is_an_answer_too():
    async def broken(scope, receive, send):
        raise KeyError("a mistake")

    heard = answer_of(broken, content_type="application/json")
    assert heard.status == 500 and json.loads(heard.body)["error"]["type"] == "server_error"


@pytest.mark.parametrize("given, unread", [({"content_length": "3"}, 0), ({}, 3)])
def test_a_refusal_waits_for_a_body_that_nobody_reads(given, unread):
    """Else who is still sending gets a reset, and not the answer."""

    async def refuses(scope, receive, send):
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    heard = answer_of(refuses, "/v1/nope", parts=3, **given)
    assert (heard.status, heard.unread) == (404, unread)
    assert answer_of(fine, "/v1/nope", parts=3, **given).unread == 3
    heard = answer_of(refuses, "/v1/nope", parts=3, expect="100-continue", **given)
    closes = heard.headers.get(b"connection") == b"close"
    assert heard.unread == 3 and closes is bool(given)


def test_a_message_shows_the_beginning_of_a_value_and_looks_at_no_more():
    class Counted:
        num = 0

        def __repr__(self):
            Counted.num += 1
            return "counted"

    assert len(shown([[Counted()] * 1000] * 1000)) <= 60 and Counted.num < 100
    assert shown("x" * 10**6) == "'" + "x" * 56 + "..."
    assert shown([1, 2.5, None]) == "[1, 2.5, None]" and shown("a") == "'a'"


def test_a_mistake_of_ours_within_an_answer_is_the_servers_to_log():
    async def broken(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise KeyError("a mistake")

    with pytest.raises(KeyError):
        answer_of(broken, content_type="application/json")


def test_a_message_about_n_names_it(shared):
    answer = shared.post("/v1/completions", {"prompt": "hi", "n": 2.5})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("n is 2.5")


def test_a_body_that_stops_in_the_middle_is_given_up_and_so_is_its_connection(server):
    stopping = server("--write-timeout", "0.5")
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", int(stopping.url.rsplit(":", 1)[1])), 60) as client:
        client.sendall(f'{head}content-length: 1000\r\n\r\n{{"prompt"'.encode())
        heard = b"".join(iter(lambda: client.recv(65536), b""))
    assert heard.startswith(b"HTTP/1.1 408 ")
    error = json.loads(heard.split(b"\r\n\r\n", 1)[1])["error"]
    assert "nothing of the body came" in error["message"]
    assert stopping.complete()


WHOLE = b"GET / HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhost: local", WHOLE + b"GET"])
def test_a_connection_whose_headers_do_not_come_is_closed(sent, monkeypatch):
    monkeypatch.setattr(protocol, "HEADERS_S", 0.05)

    async def heard() -> bytes:
        async with connected(fine) as (reader, writer):
            writer.write(sent)
            return await reader.read()  # to its end

    assert asyncio.run(heard()).count(b"HTTP/1.1 204") == sent.count(b"\r\n\r\n")


@asynccontextmanager
async def connected(app, keep_alive: float = 60):
    """A connection to an app, as the server makes it."""
    config = uvicorn.Config(
        app, http=protocol.Protocol, lifespan="off", log_config=None, timeout_keep_alive=keep_alive
    )
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: protocol.Protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    try:
        yield reader, writer
    finally:
        writer.close()
        listening.close()


def test_bytes_that_begin_no_request_do_not_keep_a_connection():
    async def heard() -> bytes:
        async with connected(fine, keep_alive=1) as (reader, writer):
            writer.write(WHOLE)
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"\r\n")
            async with asyncio.timeout(30):
                return await reader.read()

    assert asyncio.run(heard()) == b""


def test_a_last_answer_that_nobody_reads_is_thrown_away():
    lost = []

    async def large(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 50_000_000})

    async def story():
        async with connected(large, keep_alive=0.1) as (_, writer):
            writer.transport.pause_reading()
            writer.write(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n")
            async with asyncio.timeout(30):
                while not lost:
                    await asyncio.sleep(0.01)

    class Seen(protocol.Protocol):
        def connection_lost(self, exc):
            super().connection_lost(exc)
            lost.append(exc)

    whole, protocol.Protocol = protocol.Protocol, Seen
    try:
        asyncio.run(story())
    finally:
        protocol.Protocol = whole


def test_a_last_answer_that_is_read_slowly_comes_whole():
    size = 20_000_000

    async def large(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * size})

    async def story(head: bytes) -> int:
        num = 0
        async with connected(large, keep_alive=1.5) as (reader, writer):
            writer.write(b"GET / HTTP/1.1\r\n" + head + b"\r\n")
            while part := await reader.read(1_000_000):
                num += len(part)
                await asyncio.sleep(0.1 * len(part) / 1_000_000)
        return num

    for head in (b"", b"connection: close\r\n"):
        assert asyncio.run(story(head)) > size


def test_what_to_do_about_an_address_that_cannot_be_opened_is_told():
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SetupError) as told:
            listen("127.0.0.1", port, "route ...")
    assert "another server may have it" in str(told.value)
    assert f"labkit route ... --port {port + 1}" in str(told.value)
    for elsewhere in ("203.0.113.1", "no.such.host.invalid"):  # of RFC 5737, of RFC 2606
        with pytest.raises(SetupError) as told:
            listen(elsewhere, 0)
        assert "--host 127.0.0.1" in str(told.value)
        assert "another server" not in str(told.value)
