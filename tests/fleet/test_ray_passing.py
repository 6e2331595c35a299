"""A replica that is lost: before anything was sent another takes over, then it is an error."""

import asyncio
import json

import pytest

from labkit.fleet.ray_serve import passing
from labkit.fleet.ray_serve.about import About
from labkit.fleet.ray_serve.inward import Call, Head
from labkit.fleet.ray_serve.passing import TRIES, PassedOn, ReplicaLost, Replicas, says_something
from labkit.serving.errors import APIError

HEAD = Head(200, [(b"content-type", b"text/event-stream"), (b"x-request-id", b"cmpl-1")])
SPEAKS = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
TOKEN = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
LOST = ReplicaLost("the actor died")


class Fakes(Replicas):
    """Replicas that say what a test has written down: parts, or an error."""

    def __init__(self, *answers):
        super().__init__(None)
        self.answers, self.asked, self.closed = [*answers], 0, 0

    async def stream(self, call, model, about):
        self.asked += 1
        try:
            for part in self.answers.pop(0):
                if isinstance(part, BaseException):
                    raise part
                yield part
        finally:
            self.closed += 1


def passed(replicas, stream=True):
    """What a client gets: status, headers, body."""
    sent = []

    async def receive():
        await asyncio.Event().wait()

    async def send(message):
        sent.append(message)

    async def run():
        call = Call("POST", "/v1/chat/completions", json.dumps({"stream": stream}).encode())
        async with asyncio.timeout(20):
            await PassedOn(replicas, call, "tiny", About())({}, receive, send)

    asyncio.run(run())
    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert sent[0] is starts[0] and len(starts) == 1
    assert [m.get("more_body") for m in sent[1:]] == [True] * (len(sent) - 2) + [False]
    body = b"".join(message["body"] for message in sent[1:])
    return starts[0]["status"], dict(starts[0]["headers"]), body


def error_of(body):
    return json.loads(body.removeprefix(b"data: "))["error"]


def test_an_answer_goes_through_unchanged_and_says_who_gave_it():
    status, headers, body = passed(Fakes(["one", HEAD, SPEAKS, TOKEN, DONE]))
    assert (status, body) == (200, SPEAKS + TOKEN + DONE)
    assert headers[b"x-labkit-replica"] == b"one"
    assert b"x-request-id" not in headers  # Ray puts in the one that both logs have


@pytest.mark.parametrize(
    "before", [[], ["one"], ["one", HEAD], ["one", HEAD, SPEAKS]], ids=["", "name", "head", "role"]
)
def test_before_the_first_token_another_replica_takes_over(before):
    status, headers, body = passed(Fakes([*before, LOST], ["two", HEAD, SPEAKS, TOKEN, DONE]))
    assert (status, body) == (200, SPEAKS + TOKEN + DONE)
    assert headers[b"x-labkit-replica"] == b"two"


def test_after_the_first_token_the_stream_ends_with_an_error_event():
    replicas = Fakes(["one", HEAD, SPEAKS, TOKEN, LOST], ["two", HEAD, TOKEN, DONE])
    status, _, body = passed(replicas)
    assert status == 200 and body.startswith(SPEAKS + TOKEN)
    error = error_of(body.removeprefix(SPEAKS + TOKEN))
    assert error["code"] == "replica_lost" and "replica one was lost" in error["message"]
    assert DONE not in body and replicas.asked == 1


def test_a_request_that_loses_every_replica_is_told_so():
    replicas = Fakes(*[[f"number {n}", LOST] for n in range(TRIES + 1)])
    status, headers, body = passed(replicas, stream=False)
    assert status == 503 and headers[b"retry-after"] == b"1"
    assert error_of(body)["code"] == "replica_lost" and replicas.asked == TRIES


def test_when_no_replica_takes_it_that_is_the_answer():
    refusal = APIError(503, "no replica took the request", code="no_replica", retry_after=5)
    status, _, body = passed(Fakes([refusal]))
    assert status == 503 and error_of(body)["code"] == "no_replica"


def test_a_first_token_that_comes_with_who_speaks_does_not_wait():
    parts = [HEAD, SPEAKS, SPEAKS + SPEAKS, SPEAKS + TOKEN, TOKEN]
    assert [says_something(part) for part in parts] == [False, False, False, True, True]


def test_a_replica_hears_when_its_client_leaves():
    replicas = Fakes()

    async def endless(call, model, about):
        yield "one"
        yield HEAD
        try:
            while True:
                yield TOKEN
                await asyncio.sleep(0)
        finally:
            replicas.closed += 1

    replicas.stream = endless

    async def run():
        leaves = asyncio.Event()

        async def receive():
            await leaves.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            leaves.set()

        async with asyncio.timeout(20):
            await PassedOn(replicas, Call("POST", "/"), "tiny", About())({}, receive, send)

    asyncio.run(run())
    assert replicas.closed == 1 and replicas.num_open == 0


def test_of_all_that_are_asked_one_who_is_silent_or_fails_hides_nobody_else(monkeypatch):
    handles = pytest.importorskip("ray.serve.handle", reason="Ray is not installed")
    monkeypatch.setattr(passing, "LOOK_S", 0.05)

    class Result:
        def __init__(self, says):
            self.says = says

        async def get_async(self):
            if self.says == "nothing":
                await asyncio.Event().wait()
            if isinstance(self.says, Exception):
                raise self.says
            return [(self.says, 200, b"{}")]

    async def results():
        return [Result(says) for says in ("a", "nothing", OSError("gone"), "d")]

    class Handle:
        def broadcast(self, method, call):
            return handles.DeploymentBroadcastResponse(results(), None)

    found = asyncio.run(Replicas(Handle()).all(Call("GET", "/health")))
    assert [name for name, _, _ in found] == ["a", "d"]


def test_near_the_end_nothing_new_is_taken():
    replicas = Fakes(["one", HEAD, DONE])
    asyncio.run(replicas.drain(timeout=20))
    with pytest.raises(APIError, match="shutting down"):
        passed(replicas)
