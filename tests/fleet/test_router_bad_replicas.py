"""A router in front of replicas that answer what they shouldn't: clients get one answer, whole."""

import json

import pytest
from fake_replica import Call, event, get, routed, until
from test_router import WHOLE, in_a_loop

from labkit.fleet.router.health_checks import HealthChecks

SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
PLAIN = b"content-length: 2\r\nconnection: close\r\n\r\n{}"
ODD = ["999 Odd", "000 Odd", "600 Odd", "101 Switching Protocols"]
LISTS = [b"{}", b'{"data":null}', b'{"data":[5]}', b'{"data":{"a":1}}', b'{"data":"abc"}',
         b'{"data":[{"id":"x"},null]}', b"[" * 100_000, b'{"data":' + b"[" * 100_000]  # fmt: skip
NO_MODELS = [b'{"data":[{"x":1}]}', b'{"data":[{"id":[1]}]}', b'{"data":[{"id":5}]}']
NO_REQUESTS = [b'{"data":[],"mine":5}', b'{"data":[],"mine":[[1]]}', b'{"data":[],"mine":[1,"a"]}']


def status(line):
    return f"HTTP/1.1 {line}\r\n".encode() + PLAIN


@in_a_loop
async def test_a_refusal_without_end_isnt_read_to_the_end():
    async with routed("a", "b") as (app, _, (first, second)):
        first.act = "big"
        call = await Call(app).ended()
        assert (call.status, call.replica) == (200, "b")
        second.act = "refuse"
        call = await Call(app).ended()
        assert (call.status, call.json["error"]["message"]) == (429, "b is full")
        second.act = "big"
        call = await Call(app).ended()
        assert call.status == 429 and "refuses; try again" in call.json["error"]["message"]
        assert call.told["retry-after"]
        await until(lambda: first.num_open == second.num_open == 0, "both hear of it")
        assert first.num_written + second.num_written < 80_000_000


@pytest.mark.parametrize("odd", ODD)
@in_a_loop
async def test_a_status_that_no_answer_can_have_is_a_loss(odd):
    async with routed("a", "b") as (app, backends, (first, second)):
        first.act = status(odd)
        call = await Call(app).ended()
        assert (call.status, call.replica) == (200, "b")
        second.act = status(odd)
        call = await Call(app).ended()
        assert (call.status, call.json["error"]["code"]) == (502, "replica_lost")
        assert f"it answered with status {int(odd[:3])}" in call.json["error"]["message"]
        await Call(app).ended()
        await Call(app).ended()
        assert backends[0].breaker.is_open


@pytest.mark.parametrize("odd", ODD)
@in_a_loop
async def test_a_replica_with_an_odd_status_knows_no_request(odd, monkeypatch):
    async with routed("a") as (app, _, (fake,)):
        monkeypatch.setattr("fake_replica.HEAD", f"HTTP/1.1 {odd}\r\nconnection: close\r\n\r\n")
        call = await get(app, "/v1/requests/q", "DELETE")
        assert (call.status, call.json["error"]["code"]) == (503, "replica_lost")


@pytest.mark.parametrize("path, told", [
    *[("/v1/models", told) for told in LISTS + NO_MODELS],
    *[("/v1/requests", told) for told in LISTS + NO_REQUESTS],
])  # fmt: skip
@in_a_loop
async def test_a_replica_whose_list_is_none_is_missing_in_it(path, told):
    async with routed("a", "b") as (app, backends, (first, second)):
        second.requests = {"q": "running"}
        first.lists = {path: told}
        call = await get(app, path)
        assert (call.status, call.json["missing"]) == (200, ["a"])
        assert [one["id"] for one in call.json["data"]] == ["m" if path == "/v1/models" else "q"]
        await HealthChecks(backends, app.session).check_all()
        assert backends[0].is_up and backends[1].models == {"m"}


@in_a_loop
async def test_no_depth_of_a_list_is_an_error_of_the_router():
    """What could be read must be written again, where the stack is deeper."""
    paths, seen = ["/v1/models", "/v1/requests", "/v1/requests/m"], []
    async with routed("a") as (app, _, (fake,)):
        for depth in range(800, 1010, 3):
            deep = b'{"data":[{"id":"m","x":' + b"[" * depth + b"]" * depth + b"}]}"
            fake.lists = dict.fromkeys(paths, deep)
            seen.append([(await get(app, path)).status for path in [*paths, "/v1/models/m"]])
    assert {tuple(found) for found in seen} == {(200, 200, 200, 200), (200, 200, 503, 404)}


@pytest.mark.parametrize("path", ["/v1/models", "/v1/requests"])
@in_a_loop
async def test_a_list_that_is_too_long_is_missing_and_a_long_one_isnt(path, monkeypatch):
    data = json.dumps({"data": [{"id": f"{number:0200}"} for number in range(2000)]}).encode()
    async with routed("a") as (app, (backend,), (fake,)):
        fake.lists = {path: data}
        call = await get(app, path)
        assert (call.json["missing"], len(call.json["data"])) == ([], 2000)
        fake.lists = {path: data[:-1] + b" " * 5_000_000 + b"}"}
        assert (await get(app, path)).json["missing"] == ["a"]
        await HealthChecks([backend], app.session).check_all()
        assert backend.is_up and (path != "/v1/models" or backend.models is None)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/../admin", "/v1/requests/..", "/v1/x/.."])
@in_a_loop
async def test_no_path_leads_out_of_v1(path, method):
    """The server has decoded it: %2e%2e is among these."""
    async with routed("a") as (app, _, (fake,)):
        assert (await get(app, path, method)).status == 404
        assert not fake.asked
        await Call(app, "/v1/a..b").ended()
        assert len(fake.asked) == 1


@pytest.mark.parametrize("answer, reason", [
    (b"\x00secret\r\n\r\n", "its answer is no HTTP"),
    (b"HTTP/1.1 200 OK\r\nx secret\r\n\r\n", "its answer is no HTTP"),
    (b"", "it closed the connection"),
    (b"HTTP/1.1 200 OK\r\nx: secret\r\n", "it closed the connection"),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nsecret\r\n", "its answer is no HTTP"),
    (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n", "its answer isn't whole"),
])  # fmt: skip
@in_a_loop
async def test_clients_are_told_what_went_wrong_and_the_log_has_the_rest(answer, reason, caplog):
    async with routed("a") as (app, _, (fake,)):
        fake.act = answer
        call = await Call(app).ended()
        told = call.json["error"]["message"]
        assert (call.status, told) == (502, f"replica a gives no answer: {reason}; try again")
        assert caplog.records[-1].reason != reason


@in_a_loop
async def test_clients_arent_told_where_a_replica_is():
    async with routed("a", "b") as (app, backends, fakes):
        for fake in fakes:
            fake.server.close()
            await fake.server.wait_closed()
        call = await Call(app).ended()
        assert call.status == 502 and "takes no connection; try again" in call.body.decode()
        await HealthChecks(backends, app.session).check_all()
        refused = await Call(app).ended()
        assert refused.status == 503 and "it takes no connection" in refused.body.decode()
        assert "127.0.0.1" not in call.body.decode() + refused.body.decode()


@in_a_loop
async def test_a_stream_without_a_length_that_is_reset_ends_with_an_error_event():
    async with routed("a") as (app, backends, (fake,)):
        fake.act = "reset"
        call = Call(app)
        await call.begun.wait()
        fake.go.set()
        begun, error = (await call.ended()).events
        assert begun == event("a").decode()[6:-2]
        assert json.loads(error)["error"]["code"] == "replica_lost"
        assert "the connection was reset" in error and call.is_whole


@pytest.mark.parametrize("half", [b"data: {", b'data: {"a": 1}\n', b": x"])
@in_a_loop
async def test_a_stream_that_ends_inside_an_event_ends_with_an_error_event(half):
    async with routed("a") as (app, _, (fake,)):
        fake.act = SSE + event("a") + half
        begun, error = (await Call(app).ended()).events
        assert begun == event("a").decode()[6:-2]
        assert "it ended inside an event" in json.loads(error)["error"]["message"]


@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n", b"data: [DONE]\n\n\n", b"\n"])
@in_a_loop
async def test_a_stream_that_ends_after_an_event_is_whole(end):
    async with routed("a") as (app, backends, (fake,)):
        fake.act = SSE + WHOLE.removesuffix(b"data: [DONE]\n\n") + end
        call = await Call(app).ended()
        assert call.body == fake.act.removeprefix(SSE) and call.is_whole
