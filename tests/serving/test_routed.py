"""The router as a process, in front of servers that are processes: cases 30 and 31, and losses."""

import os
import signal
import sys

import httpx
import pytest
from serving_process import Server, Stream, completion, until

from labkit.fleet.router import route

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stops processes with SIGSTOP")
OFTEN = ("--first-byte-timeout", "120", "--health-interval", "0.2")
PATIENT = ("--health-timeout", "60")  # nobody is left out because the machine is slow


class Router(Server):
    """`python -m labkit.fleet.router.route`, which asks its replicas often."""

    module, defaults = route.__name__, PATIENT

    def replica(self, prompt="hello", **body):
        """Who answers."""
        response = self.post("/v1/completions", completion(prompt, **body))
        assert response.status_code == 200, response.text
        return response.headers["x-labkit-replica"]

    def seen(self):
        return {one["name"]: one for one in self.health()["replicas"]}


@pytest.fixture(scope="module")
def twins(for_all, long_checkpoint):
    """Two servers with answers as long as a test needs; no test ends them."""
    options = ("--model", long_checkpoint, "--served-model-name", "m", "--max-num-seqs", "8",
               "--num-blocks", "4096")  # fmt: skip
    return for_all(*options), for_all(*options)


@pytest.fixture
def router(tmp_path):
    """Starts a router in front of servers, called a, b, ..."""
    started = []

    def start(*servers, **variables):
        options = [*OFTEN]
        for name, one in zip("abc", servers, strict=False):
            options += ["--backend", f"{name}={one.url}"]
        folder = tmp_path / f"router{len(started)}"
        started.append(Router(folder, [*options, *variables.pop("options", ())], variables))
        started[-1].wait_until_ready()
        until(lambda: all(one["models"] for one in started[-1].seen().values()), "models")
        return started[-1]

    yield start
    for one in started:
        one.stop()


def texts(server, count=4):
    return [server.text(f"hello {i}", model="m") for i in range(count)]


def test_through_the_router_texts_are_the_same_streamed_or_not(twins, router):
    one = router(*twins)
    assert texts(one) == texts(twins[0])
    assert one.stream("hello 0", model="m").rest().text() == one.text("hello 0", model="m")
    assert one.http.get("/v1/models").json()["data"][0]["replicas"] == ["a", "b"]


def test_case_30_a_replica_that_accepts_and_never_answers_slows_only_its_own(twins, router):
    one = router(*twins, options=["--policy", "round-robin", "--health-timeout", "3"])
    stopped = [twins[0].pid, twins[0].engine_pid()]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        with httpx.Client(base_url=one.url, timeout=120, trust_env=False) as client:
            asked = [client.post("/v1/completions", json=completion("x")) for _ in range(4)]
        assert {response.headers["x-labkit-replica"] for response in asked} == {"b"}
        assert until(lambda: not one.seen()["a"]["up"], "left out") is not False
        assert {one.replica() for _ in range(6)} == {"b"}
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    until(lambda: one.seen()["a"]["up"], "taken back")
    until(lambda: one.replica() == "a", "asked again")


def test_case_31_load_counts_from_dispatch(twins, router):
    one = router(*twins)  # least loaded
    streams = [one.stream(f"{i}", max_tokens=20_000, ignore_eos=True) for i in range(6)]
    found = [stream.response.headers["x-labkit-replica"] for stream in streams]
    assert sorted(found) == ["a"] * 3 + ["b"] * 3
    listed = {told["id"]: told["replica"] for told in one.requests()}
    assert listed == {s.id: name for s, name in zip(streams, found, strict=True)}
    assert one.delete(streams[0].id) == {
        "id": streams[0].id, "cancelled": True, "state": "finished", "replica": found[0],
    }  # fmt: skip
    for stream in streams[1:]:
        stream.leave()
    for server in twins:  # it hears of those that left
        server.wait_until_idle()
    assert all(told["requests"] == 0 for told in one.seen().values())


def test_a_killed_replica_loses_its_own_streams_only(twins, router, server, long_checkpoint):
    victim = server("--model", long_checkpoint, "--served-model-name", "m", "--num-blocks", "4096")
    one = router(victim, twins[1], options=["--policy", "round-robin"])
    streams = [one.stream("x", max_tokens=3000, ignore_eos=True).take(2) for _ in range(4)]
    found = [stream.response.headers["x-labkit-replica"] for stream in streams]
    assert sorted(found) == ["a", "a", "b", "b"]
    victim.process.kill()
    for stream, name in zip(streams, found, strict=True):
        stream.rest()
        assert (stream.error or {}).get("code") == ("replica_lost" if name == "a" else None)
        assert stream.is_done == (name == "b")
    assert [one.replica() for _ in range(4)] == ["b"] * 4
    assert one.http.get("/health").status_code == 200


def test_sigterm_finishes_what_is_open_and_takes_nothing_new(twins, router):
    one = router(*twins)
    stream = one.stream("x", max_tokens=400, ignore_eos=True).take(1)
    one.process.send_signal(signal.SIGTERM)
    until(lambda: one.health()["status"] == "draining", "draining")
    refused = one.post("/v1/completions", completion("x"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    stream.rest()
    assert stream.is_done
    assert one.exit_status() == 0


def test_a_key_is_checked_and_passed_on_and_a_large_body_refused(twins, router):
    one = router(*twins, LABKIT_API_KEY="K")
    assert one.post("/v1/completions", completion("x")).status_code == 401
    fine = one.post("/v1/completions", completion("x"), authorization="Bearer K")
    assert fine.status_code == 200
    large = completion("x" * 3_000_000)
    refused = one.post("/v1/completions", large, authorization="Bearer K")
    assert (refused.status_code, refused.json()["error"]["param"]) == (413, "body")


def test_a_stream_to_chat_has_its_usage_at_the_end(twins, router):
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True}
    body |= {"stream_options": {"include_usage": True}, "ignore_eos": True}
    stream = Stream(router(*twins), "/v1/chat/completions", body).rest()
    assert stream.is_done and stream.chunks[-1]["usage"]["completion_tokens"] == 5
