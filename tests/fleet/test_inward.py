"""An ASGI app asked without a socket."""

import asyncio

import pytest

from labkit.fleet.ray_serve.inward import MOST_CHUNKS, Call, Head, ask

CALL = Call("POST", "/path", b"body", [(b"content-type", b"text/plain")])


def start(send, status=200):
    return send({"type": "http.response.start", "status": status, "headers": [(b"a", b"b")]})


def chunk(send, body, more=True):
    return send({"type": "http.response.body", "body": body, "more_body": more})


def run(work):
    return asyncio.run(asyncio.wait_for(work, 20))


async def echo(scope, receive, send):
    message = await receive()
    await start(send, 201)
    for letter in message["body"]:
        await chunk(send, bytes([letter]))
    await chunk(send, scope["path"].encode(), more=False)


def test_the_head_comes_first_then_the_body_as_it_is_made():
    async def all_of_it():
        return [part async for part in ask(echo, CALL)]

    head, *body = run(all_of_it())
    assert head == Head(201, [(b"a", b"b")])
    assert b"".join(body) == b"body/path"


def test_what_is_made_while_nobody_reads_comes_in_one_piece():
    async def slowly():
        parts = ask(echo, CALL)
        await anext(parts)
        for _ in range(20):
            await asyncio.sleep(0)
        return [part async for part in parts]

    assert run(slowly()) == [b"body/path"]


def test_who_stops_reading_has_left():
    left = []

    async def endless(scope, receive, send):
        await receive()
        await start(send)
        writing = asyncio.create_task(write(send))
        left.append((await receive())["type"])
        writing.cancel()

    async def write(send):
        while True:
            await chunk(send, b"more")
            await asyncio.sleep(0)

    async def read_two():
        parts = ask(endless, CALL)
        await anext(parts), await anext(parts)
        await parts.aclose()

    run(read_two())
    assert left == ["http.disconnect"]


def test_an_app_waits_for_a_reader_that_is_slow():
    sent = []

    async def quick(scope, receive, send):
        await start(send)
        for number in range(10 * MOST_CHUNKS):
            await chunk(send, b"x")
            sent.append(number)

    async def read_one():
        parts = ask(quick, CALL)
        await anext(parts)
        for _ in range(100):
            await asyncio.sleep(0)
        ahead = len(sent)
        rest = [part async for part in parts]
        return ahead, b"".join(rest)

    ahead, rest = run(read_one())
    assert ahead <= 2 * MOST_CHUNKS + 1
    assert rest == b"x" * 10 * MOST_CHUNKS


def test_what_an_app_raises_its_caller_gets():
    async def broken(scope, receive, send):
        raise ZeroDivisionError("in the app")

    async def read():
        return [part async for part in ask(broken, CALL)]

    with pytest.raises(ZeroDivisionError, match="in the app"):
        run(read())
