"""The router between clients and replicas: what is passed on, what is tried again, what ends."""

import asyncio
import json
import random
from functools import wraps

import pytest
from fake_replica import Call, event, get, routed, until

from labkit.fleet.router.backends import Timeouts
from labkit.fleet.router.flight import Ended, Flight
from labkit.fleet.router.health_checks import HealthChecks
from labkit.fleet.routing import LeastLoaded, PrefixAware

WHOLE = event("a") + event("b") + b"data: [DONE]\n\n"
NEVER = (b"prefer", b"respond-async")


def in_a_loop(test):
    @wraps(test)
    def run(*arguments, **options):
        asyncio.run(test(*arguments, **options))

    return run


@in_a_loop
async def test_bytes_and_headers_are_passed_on_but_not_those_of_the_connection():
    async with routed("a") as (app, _, (fake,)):
        given = [(b"authorization", b"Bearer K"), (b"connection", b"x-hop, keep-alive"),
                 (b"x-hop", b"1"), (b"te", b"trailers"), (b"x-own", b"2")]  # fmt: skip
        call = await Call(app, headers=given).ended()
        assert (call.status, call.body, call.is_whole) == (200, WHOLE, True)
        assert call.told["x-more"] == "kept"
        assert not {"connection", "keep-alive", "transfer-encoding"} & {*call.told}
        line, sent, body = fake.asked[0]
        assert line == "POST /v1/completions HTTP/1.1"
        assert json.loads(body)["prompt"] == "hello"
        assert (sent["authorization"], sent["x-own"]) == ("Bearer K", "2")
        assert not {"x-hop", "te"} & {*sent}


@in_a_loop
async def test_path_query_and_what_is_no_ascii_arrive_as_they_were():
    async with routed("a") as (app, _, (fake,)):
        label = [(b"x-own", "한글".encode())]
        await Call(app, "/v1/a%2Fb", headers=label, query=b"x=%20&y").ended()
        line, sent, _ = fake.asked[0]
        assert line == "POST /v1/a%2Fb?x=%20&y HTTP/1.1"
        assert sent["x-own"].encode("latin-1").decode() == "한글"


@in_a_loop
async def test_an_answer_says_who_gave_it_and_has_the_id_by_which_it_is_known_there():
    async with routed("a") as (app, _, (fake,)):
        call = await Call(app, headers=[(b"x-request-id", b"mine")]).ended()
        assert (call.replica, call.told["x-request-id"]) == ("a", "a-1")
        assert fake.asked[0][1]["x-request-id"] == "mine"
        await Call(app).ended()
        assert fake.asked[1][1]["x-request-id"].startswith("route-")


@pytest.mark.parametrize("act", ["drop", "refuse", "loading"])
@in_a_loop
async def test_until_the_first_byte_another_replica_is_tried(act):
    async with routed("a", "b") as (app, _, (first, second)):
        first.act = act
        call = await Call(app).ended()
        assert (call.status, call.replica, call.body) == (200, "b", WHOLE)
        assert len(first.asked) == len(second.asked) == 1


@in_a_loop
async def test_a_replica_that_isnt_there_costs_a_retry_only():
    async with routed("a", "b") as (app, _, (first, _)):
        first.server.close()
        await first.server.wait_closed()
        call = await Call(app, "/v1/other").ended()  # not safe, but it was never sent
        assert (call.status, call.replica) == (200, "b")


@pytest.mark.parametrize("path, header", [("/v1/responses", ()), ("/v1/completions", (NEVER,))])
@in_a_loop
async def test_what_may_have_begun_and_isnt_safe_is_not_sent_twice(path, header):
    async with routed("a", "b") as (app, _, (first, second)):
        first.act = "drop"
        call = await Call(app, path, headers=header).ended()
        assert (call.status, call.json["error"]["code"]) == (502, "replica_lost")
        assert not second.asked


@in_a_loop
async def test_a_request_that_kills_replicas_kills_two_of_them_at_most():
    async with routed("a", "b", "c") as (app, _, fakes):
        for fake in fakes:
            fake.act = "drop"
        call = await Call(app).ended()
        assert (call.status, call.replica) == (502, "a, b")
        assert [len(fake.asked) for fake in fakes] == [1, 1, 0]


@pytest.mark.parametrize("code", ["engine_failed", "replica_lost"])
@in_a_loop
async def test_a_request_of_which_engines_die_is_not_given_to_everybody(code):
    """labkit says 503 then: its engine comes back. "Not now" it isn't."""
    died = json.dumps({"error": {"message": "the engine ended", "code": code}}).encode()
    head = b"HTTP/1.1 503 S\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"
    for path, most in (("/v1/completions", 2), ("/v1/responses", 1)):
        async with routed("a", "b", "c") as (app, _, fakes):
            for fake in fakes:
                fake.act = head + died
            call = await Call(app, path).ended()
            assert (call.status, call.body) == (503, died)
            assert sum(len(fake.asked) for fake in fakes) == most


@in_a_loop
async def test_when_all_refuse_the_client_is_told_so_and_when_to_come_back():
    async with routed("a", "b") as (app, backends, fakes):
        for fake in fakes:
            fake.act = "refuse"
        for _ in range(4):
            call = await Call(app).ended()
            assert (call.status, call.told["retry-after"]) == (429, "7")
            assert call.json["error"]["message"] == f"{call.replica} is full"
        assert all(one.breaker.state(0) == "closed" for one in backends)  # they live


@pytest.mark.parametrize("act, status", [("loading", 503), ("fail", 500)])
@in_a_loop
async def test_a_request_that_fails_everywhere_costs_the_others_no_replica(act, status):
    """A model that can't be loaded is a 503, one that the engine fails on a 500."""
    async with routed("a", "b") as (app, _, fakes):
        for fake in fakes:
            fake.act = act
        for _ in range(8):
            assert (await Call(app).ended()).status == status
        for fake in fakes:
            fake.act = "answer"
        assert {(await Call(app).ended()).replica for _ in range(2)} == {"a", "b"}


@in_a_loop
async def test_a_replica_that_begins_every_stream_and_breaks_it_off_is_left_out():
    async with routed("a", "b") as (app, _, (first, second)):
        first.act = "break"
        found = [(await Call(app).ended()).replica for _ in range(10)]
        assert found == ["a", "b"] * 3 + ["b"] * 4
        assert len(first.asked) == 3


@in_a_loop
async def test_each_replica_has_its_own_timeouts():
    async with routed("a", "b") as (app, backends, (first, second)):
        first.act = second.act = "wait"
        backends[0].timeouts = Timeouts(between_bytes=0.05)
        calls = [Call(app) for _ in range(2)]
        cut = await calls[0].ended()
        assert "within 0.05 s" in json.loads(cut.events[-1])["error"]["message"]
        assert second.num_open == 1
        second.go.set()
        assert (await calls[1].ended()).body == WHOLE
        first.act, backends[0].timeouts = "silent", Timeouts(first_byte=0.05)
        assert [(await Call(app).ended()).replica for _ in range(2)] == ["b"] * 2


@in_a_loop
async def test_the_time_to_connect_is_the_replicas_own_too(monkeypatch):
    async with routed("a", "b") as (app, backends, _):
        backends[0].timeouts = Timeouts(connect=7.0)
        given, request = [], app.session.request
        monkeypatch.setattr(
            app.session, "request", lambda *a, **o: given.append(o["timeout"]) or request(*a, **o)
        )
        for _ in range(2):
            await Call(app).ended()
        assert [one.sock_connect for one in given] == [7.0, Timeouts().connect]
        assert {one.total for one in given} == {None}


@in_a_loop
async def test_a_loss_in_a_stream_is_an_error_event_and_then_the_end():
    async with routed("a", "b") as (app, _, (first, second)):
        first.act = "break"
        call = await Call(app).ended()
        begun, error = call.events  # no half event
        assert begun == event("a").decode()[6:-2]
        assert json.loads(error)["error"]["code"] == "replica_lost"
        assert "replica a" in json.loads(error)["error"]["message"]
        assert call.is_whole and not second.asked


@in_a_loop
async def test_a_loss_in_a_json_object_cuts_the_connection():
    async with routed("a", "b") as (app, _, (first, _)):
        first.act = "half"
        call = await Call(app, body={"prompt": "x"}).ended()
        assert call.was_cut and not call.is_whole


@in_a_loop
async def test_an_error_of_the_engine_is_passed_on():
    async with routed("a", "b") as (app, _, (first, second)):
        first.act = "fail"
        call = await Call(app).ended()
        assert (call.status, call.json["error"]["message"]) == (500, "it failed")
        assert not second.asked


@pytest.mark.parametrize("act", ["wait", "silent", "flood"])
@in_a_loop
async def test_a_client_that_leaves_cancels_its_request_at_the_replica(act):
    async with routed("a") as (app, backends, (fake,)):
        fake.act = act
        call = Call(app)
        await until(lambda: fake.num_open == 1, "asked")
        assert backends[0].replica.num_requests == 1
        call.left.set()
        await call.ended()
        await until(lambda: fake.num_closed == 1, "the replica hears of it")
        assert backends[0].replica.num_requests == 0


@in_a_loop
async def test_a_client_that_doesnt_read_holds_the_replica_back():
    async with routed("a") as (app, _, (fake,)):
        fake.act = "flood"
        call = Call(app)
        call.slow = asyncio.Event()
        seen = []

        def is_still():
            seen.append(fake.num_written)
            return len(seen) > 40 and len({*seen[-40:]}) == 1

        await until(is_still, "it stops to write")
        assert fake.num_written < 50e6
        call.slow.set()
        await until(lambda: fake.num_written > seen[-1], "it goes on")
        call.left.set()
        await call.ended()


@in_a_loop
async def test_a_replica_that_never_answers_is_given_up_and_then_left_out():
    """Case 30."""
    patience = Timeouts(first_byte=0.05)
    async with routed("a", "b", timeouts=patience) as (app, backends, (first, second)):
        first.act = "silent"
        for _ in range(8):
            call = await Call(app).ended()
            assert (call.status, call.replica) == (200, "b")
        assert len(first.asked) == 3  # then its breaker is open
        assert backends[0].breaker.is_open and len(second.asked) == 8


@in_a_loop
async def test_whoever_waits_at_a_replica_that_goes_down_moves_at_once():
    """Case 30, with health checks: nobody waits for the long timeout of a first byte."""
    async with routed("a", "b") as (app, backends, (first, second)):
        first.act, first.health = "silent", None
        waiting = [Call(app) for _ in range(4)]
        await until(lambda: first.num_open == 2, "two of them wait")
        checks = HealthChecks(backends, app.session, timeout=0.05)
        await checks.check_all()
        assert backends[0].is_up  # once may be chance
        await checks.check_all()
        assert not backends[0].is_up and backends[1].is_up
        for call in waiting:
            assert (await call.ended()).replica == "b"
        assert [(await Call(app).ended()).replica for _ in range(3)] == ["b"] * 3
        first.act, first.health = "answer", 200
        await checks.check_all()
        assert backends[0].is_up


@in_a_loop
async def test_whoever_waits_at_the_only_replica_or_at_one_that_drains_goes_on_waiting():
    async with routed("a", "b") as (app, backends, (first, second)):
        first.act = second.act = "silent"
        calls = [Call(app) for _ in range(2)]
        await until(lambda: first.num_open == second.num_open == 1, "both wait")
        first.health = 503
        checks = HealthChecks(backends, app.session, timeout=0.05)
        await checks.check_all()
        assert not backends[0].is_up and first.num_open == 1  # it may finish what it has
        second.health = None
        await checks.check_all()
        await checks.check_all()
        assert not backends[1].is_up and second.num_open == 1
        assert len(first.asked) == len(second.asked) == 1
        for call in calls:
            call.left.set()
            await call.ended()


@pytest.mark.parametrize("why", ["model", "not safe", "no retries"])
@in_a_loop
async def test_whom_no_other_replica_would_get_waits_at_the_silent_one(why):
    options = {"retries": 0} if why == "no retries" else {}
    async with routed("a", "b", **options) as (app, backends, (first, second)):
        if why == "model":
            second.models = ["another"]
            await HealthChecks(backends, app.session).check_all()
        first.act = "silent"
        path = "/v1/responses" if why == "not safe" else "/v1/completions"
        call = Call(app, path, body={"model": "m", "prompt": "x", "stream": True})
        await until(lambda: first.num_open == 1, "it waits")
        first.health = None
        checks = HealthChecks(backends, app.session, timeout=0.05)
        await checks.check_all()
        await checks.check_all()
        assert not backends[0].is_up and first.num_open == 1 and not call.task.done()
        call.left.set()
        await call.ended()


@pytest.mark.parametrize("turns", range(12))
@in_a_loop
async def test_who_leaves_as_the_first_bytes_come_is_heard(turns):
    """An end and a beginning in one turn of the loop: the beginning must not call off the end."""
    async with routed("a") as (app, (backend,), (fake,)):
        fake.act = "wait"
        call = Call(app)
        await until(lambda: fake.num_open == 1, "it is asked")
        for _ in range(turns):
            await asyncio.sleep(0)
        call.left.set()
        await call.ended()
        await until(lambda: fake.num_open == 0, "the replica hears of it")
        assert backend.replica.load == (0, 0)


def test_a_flight_that_was_ended_does_not_begin():
    async def story():
        flight = Flight()
        with pytest.raises(Ended, match="the client left"):
            async with flight.within(5):
                flight.leave()
                flight.has_first_byte(5)
        assert flight.timer is None and not flight.has_begun

    asyncio.run(story())


@pytest.mark.parametrize("status", [502, 504])
@in_a_loop
async def test_what_stands_before_a_replica_and_cannot_reach_it_is_a_loss(status):
    told = f"HTTP/1.1 {status} Bad\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}".encode()
    async with routed("a", "b") as (app, backends, (first, second)):
        first.act = told
        for _ in range(8):
            assert (await Call(app).ended()).replica == "b"
        assert len(first.asked) == 3 and backends[0].breaker.is_open
        second.act = told
        call = await Call(app).ended()
        assert (call.status, call.json["error"]["code"]) == (502, "replica_lost")
        assert f"answers {status}" in call.json["error"]["message"]


@in_a_loop
async def test_streams_that_flow_are_left_alone_when_a_check_fails():
    async with routed("a") as (app, backends, (fake,)):
        fake.act = "wait"
        call = Call(app)
        await call.begun.wait()
        fake.health = 503
        await HealthChecks(backends, app.session).check_all()
        assert not backends[0].is_up
        fake.go.set()
        assert (await call.ended()).body == WHOLE
        refused = await Call(app).ended()
        assert (refused.status, refused.json["error"]["code"]) == (503, "no_replica")
        assert "a: /health says 503" in refused.json["error"]["message"]
        assert refused.told["retry-after"]


@in_a_loop
async def test_silence_in_a_stream_ends_it():
    async with routed("a", timeouts=Timeouts(between_bytes=0.05)) as (app, _, (fake,)):
        fake.act = "wait"
        call = await Call(app).ended()
        assert "nothing more came within 0.05 s" in json.loads(call.events[-1])["error"]["message"]
        await until(lambda: fake.num_closed == 1, "the replica hears of it")


@in_a_loop
async def test_load_counts_from_dispatch():
    """Case 31: nobody has had a token, and still they are spread."""
    async with routed("a", "b", "c", policy=LeastLoaded()) as (app, backends, fakes):
        for fake in fakes:
            fake.act = "silent"
        calls = [Call(app) for _ in range(9)]
        await until(lambda: sum(fake.num_open for fake in fakes) == 9, "all are there")
        assert [fake.num_open for fake in fakes] == [3, 3, 3]
        for call in calls:
            call.left.set()
            await call.ended()


@in_a_loop
async def test_prompts_that_begin_alike_go_to_the_same_replica():
    async with routed("a", "b", policy=PrefixAware()) as (app, _, _):
        found = {}
        for turn in range(3):
            for person in range(6):
                said = [{"role": "user", "content": f"{person} " * 200}] * (turn + 1)
                call = await Call(app, "/v1/chat/completions", {"messages": said}).ended()
                found.setdefault(person, set()).add(call.replica)
        assert all(len(replicas) == 1 for replicas in found.values())
        assert len(set.union(*found.values())) == 2


@in_a_loop
async def test_a_request_goes_where_its_model_is():
    async with routed("a", "b") as (app, backends, fakes):
        fakes[1].models = ("m", "other")
        await HealthChecks(backends, app.session).check_all()
        for _ in range(3):
            call = await Call(app, body={"model": "other", "prompt": "x"}).ended()
            assert call.replica == "b"
        call = await Call(app, body={"model": "none", "prompt": "x"}).ended()
        assert (call.status, call.json["error"]["code"]) == (404, "model_not_found")
        listed = (await get(app, "/v1/models")).json["data"]
        told = {one["id"]: one["replicas"] for one in listed}
        assert told == {"m": ["a", "b"], "other": ["b"]}
        assert (await get(app, "/v1/models/other")).json["replicas"] == ["b"]
        assert (await get(app, "/v1/models/none")).status == 404


@in_a_loop
async def test_a_list_of_models_that_comes_too_late_leaves_what_was_known(monkeypatch):
    async with routed("a") as (app, (backend,), (fake,)):
        checks = HealthChecks([backend], app.session, timeout=0.2)
        await checks.check_all()
        late = fake.view

        async def view(line, *rest):
            if "/v1/models" in line:
                await asyncio.Event().wait()
            await late(line, *rest)

        monkeypatch.setattr(fake, "view", view)
        await checks.check_all()
        assert backend.is_up and backend.models == {"m"}


@in_a_loop
async def test_a_health_check_that_fails_by_our_own_mistake_ends_nothing(monkeypatch):
    async with routed("a", "b") as (app, backends, fakes):
        checks, checked = HealthChecks(backends, app.session, interval=0.01), []

        async def check(backend, with_models):
            checked.append(backend.name)
            raise KeyError("a mistake")

        monkeypatch.setattr(checks, "check", check)
        running = asyncio.create_task(checks.run())
        await until(lambda: min(map(checked.count, "ab")) > 2, "checks go on")
        assert not running.done()
        running.cancel()


@in_a_loop
async def test_a_request_is_known_by_the_name_that_its_replica_gave_it_and_took_it_by():
    """Not by a client's: one may be as long as headers may be, or be another's too."""
    async with routed("a") as (app, _, (fake,)):
        await Call(app, headers=[(b"x-request-id", b"mine")]).ended()
        assert [*app.proxy.owners] == ["a-1"]
        fake.act = "fail"
        assert (await Call(app).ended()).status == 500
        head = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n"
        for more in (b"", b"x-request-id: " + b"x" * 300 + b"\r\n"):
            fake.act = head + more + b"\r\n"
            assert (await Call(app).ended()).status == 200
        assert [*app.proxy.owners] == ["a-1"]


@in_a_loop
async def test_the_address_that_is_printed_says_what_it_is():
    async with routed("a") as (app, _, _):
        page = await get(app, "/")
        assert page.status == 200 and b"GET /health" in page.body


@in_a_loop
async def test_why_no_replica_can_be_asked_is_told_of_each():
    async with routed("a", "b", "c") as (app, (first, second, third), (fake, *_)):
        second.models, third.is_up, third.detail = frozenset({"other"}), False, "it is away"
        fake.act = "drop"
        for _ in range(first.breaker.failures):
            call = await Call(app, body={"model": "m", "prompt": "x"}).ended()
            assert call.json["error"]["code"] == "replica_lost"  # what became of it says more
        call = await Call(app, body={"model": "m", "prompt": "x"}).ended()
        assert (call.status, call.json["error"]["code"]) == (503, "no_replica")
        why = "(a: its breaker is open; b: it doesn't have the model; c: it is away)"
        assert why in call.json["error"]["message"]


@in_a_loop
async def test_health_checks_read_the_models_of_replicas_that_want_the_routers_key():
    async with routed("a") as (app, (backend,), (fake,)):
        fake.api_key = "K"
        await HealthChecks([backend], app.session).check_all()
        assert backend.is_up and backend.models is None  # any may be there
        await HealthChecks([backend], app.session, api_key="K").check_all()
        assert backend.models == {"m"}


DEEP = b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}"
ODD = [b"", b"no JSON", b"[1]", b'{"max_tokens": "x"}', b'{"model": "\xff"}', DEEP]


@pytest.mark.parametrize("payload", ODD, ids=lambda payload: repr(payload[:20]))
@in_a_loop
async def test_what_cant_be_read_is_the_replicas_to_refuse(payload):
    async with routed("a") as (app, _, (fake,)):
        assert (await Call(app, body=payload).ended()).status == 200
        assert fake.asked[0][2] == payload


@in_a_loop
async def test_requests_are_listed_with_their_replica_and_cancelled_where_they_are():
    async with routed("a", "b") as (app, _, (first, second)):
        first.requests, second.requests = {"q1": "running"}, {"q2": "waiting"}
        told = (await get(app, "/v1/requests")).json
        assert {one["id"]: one["replica"] for one in told["data"]} == {"q1": "a", "q2": "b"}
        assert told["missing"] == []
        gone = await get(app, "/v1/requests/q2", "DELETE")
        assert gone.json == {"id": "q2", "cancelled": True, "replica": "b"}
        assert (await get(app, "/v1/requests/q3", "DELETE")).status == 404
        second.server.close()
        await second.server.wait_closed()
        assert (await get(app, "/v1/requests")).json["missing"] == ["b"]
        assert (await get(app, "/v1/requests/q2", "DELETE")).status == 503  # it may be there


@in_a_loop
async def test_a_shutdown_refuses_what_comes_and_ends_what_stays():
    async with routed("a") as (app, _, (fake,)):
        fake.act = "wait"
        stream = Call(app)
        await stream.begun.wait()
        fake.act = "silent"
        waiting = Call(app)
        await until(lambda: fake.num_open == 2, "both are there")
        draining = asyncio.create_task(app.drain(0.2))
        await asyncio.sleep(0)
        late = await Call(app).ended()
        assert (late.status, late.json["error"]["code"]) == (503, "draining")
        assert (await get(app, "/health")).json["status"] == "draining"
        await draining
        error = json.loads((await stream.ended()).events[-1])["error"]
        assert "shutting down" in error["message"]
        assert (await waiting.ended()).status == 503


@in_a_loop
async def test_five_hundred_streams_are_held_at_once():
    async with routed("a", "b") as (app, _, fakes):
        for fake in fakes:
            fake.act = "wait"
        calls = [Call(app) for _ in range(500)]
        await until(lambda: all(call.begun.is_set() for call in calls), "all have begun")
        assert app.num_open == 500
        for fake in fakes:
            fake.go.set()
        assert all([(await call.ended()).body == WHOLE for call in calls])


@in_a_loop
async def test_health_and_metrics_are_the_routers_own():
    async with routed("a", "b") as (app, backends, _):
        await Call(app).ended()
        backends[1].is_up = False
        told = (await get(app, "/health")).json
        assert told["status"] == "ready"
        assert [one["up"] for one in told["replicas"]] == [True, False]
        page = (await get(app, "/metrics")).body.decode()
        assert 'labkit:router_answers_total{replica="a",status="200"} 1.0' in page
        assert 'labkit:router_replica_up{replica="b"} 0.0' in page
        backends[0].is_up = False
        assert (await get(app, "/health")).status == 503


@pytest.mark.parametrize("path, method, status", [("/x", "GET", 404), ("/v1/x", "PUT", 405)])
@in_a_loop
async def test_what_the_router_hasnt_is_refused_with_what_it_has(path, method, status):
    async with routed("a") as (app, _, _):
        call = await get(app, path, method)
        assert (call.status, "/v1/" in call.json["error"]["message"]) == (status, True)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", [LeastLoaded, PrefixAware])
@in_a_loop
async def test_in_any_history_each_client_gets_one_answer_or_one_error(policy, seed):
    draw = random.Random(seed)
    acts = ["answer", "drop", "break", "refuse", "loading", "fail", "wait"]
    patience = Timeouts(first_byte=20, between_bytes=20)
    async with routed("a", "b", "c", policy=policy(), timeouts=patience) as (app, backends, fakes):
        calls = []
        for _ in range(60):
            draw.choice(fakes).act = draw.choice(acts)
            draw.choice(backends).is_up = draw.random() < 0.8
            body = {"prompt": str(draw.randrange(4)) * 300, "stream": True}
            calls.append(Call(app, body=body))
            if draw.random() < 0.2:
                draw.choice(calls).left.set()
            await asyncio.sleep(draw.choice([0, 0, 0.005]))
        for fake in fakes:
            fake.go.set()
        for call in calls:
            await call.ended()
            assert call.is_whole or call.left.is_set()
            if call.left.is_set():
                continue
            if call.status == 200:
                ends = call.body.endswith(b"[DONE]\n\n"), b"replica_lost" in call.body
                assert sorted(ends) == [False, True], call.body
            else:
                assert call.status in (429, 500, 502, 503) and call.json["error"]["message"]
        assert app.num_open == 0
