"""What attackers and hasty clients found: keys, bodies that stop, messages without their field."""

import asyncio
import json
import socket

import pytest
import uvicorn
from uvicorn.server import ServerState

from labkit.serving import server as serving
from labkit.serving.guards import Guards
from labkit.serving.options import parse


def status_with(authorization: str) -> int:
    """What a guarded server with the key KEY answers to this header."""
    sent = []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    headers = [(b"authorization", authorization.encode())]
    scope = {"type": "http", "path": "/v1/models", "method": "GET", "headers": headers}
    asyncio.run(Guards(app, "KEY")(scope, receive, send))
    return sent[0]["status"]


@pytest.mark.parametrize("header", ["Bearer KEY", "bearer KEY", "BEARER KEY", "Bearer  KEY"])
def test_the_schemes_case_and_spaces_do_not_matter(header):
    assert status_with(header) == 200


@pytest.mark.parametrize("header", ["Bearer key", "Basic KEY", "KEY", "Bearer", "", "Bearer KEYS"])
def test_the_keys_do(header):
    assert status_with(header) == 401


@pytest.mark.parametrize("key", ["", "  "])
def test_an_empty_key_is_no_key(key, capsys):
    with pytest.raises(SystemExit):
        parse(["--api-key", key])
    assert "--api-key is empty" in capsys.readouterr().err


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
    monkeypatch.setattr(serving, "HEADERS_S", 0.05)

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def heard() -> bytes:
        config = uvicorn.Config(app, http=serving.Protocol, lifespan="off", log_config=None)
        config.load()
        state, loop = ServerState(), asyncio.get_running_loop()
        listening = await loop.create_server(
            lambda: serving.Protocol(config=config, server_state=state, app_state={}),
            "127.0.0.1", 0,
        )  # fmt: skip
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        writer.write(sent)
        found = await reader.read()  # to its end
        writer.close()
        listening.close()
        return found

    assert asyncio.run(heard()).count(b"HTTP/1.1 204") == sent.count(b"\r\n\r\n")
