"""Replicas on Ray Serve, for real: one start for all tests, one more that is killed early."""

import importlib.util
import signal
import sys
import time

import pytest
from ray_server import RayServer, Stream, is_alive, until

from labkit.model import tiny

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Ray for Windows is a beta"),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install .[ray]"
    ),
]
LONG = 60_000  # tokens: an answer lasts until the test ends it
HELLO = {"prompt": "hello", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One replica, which may become two."""
    folder = tmp_path_factory.mktemp("ray")
    model = tiny.tiny_model()
    model.config.max_position_embeddings = 65536
    model.save_pretrained(folder / "long")
    tiny.tiny_tokenizer().save_pretrained(folder / "long")
    one = RayServer(
        folder / "server", "--model", f"long={folder / 'long'}", "--replicas", 1,
        "--max-replicas", 2, "--requests-each", 2, "--num-blocks", 16384, "--max-num-seqs", 8,
    )  # fmt: skip
    yield one
    one.stop()


@pytest.fixture
def ready(server):
    server.wait_until_ready()
    yield server
    if server.process.poll() is not None:
        return
    for one in server.http.get("/v1/requests").json()["data"]:
        server.http.delete(f"/v1/requests/{one['id']}")


def test_it_answers_as_one_server_does(ready):
    answer = ready.http.post("/v1/completions", json=HELLO)
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 4
    assert answer.headers["x-labkit-replica"] in ready.replicas()
    wrong = ready.http.post("/v1/completions", json=HELLO | {"max_tokens": -1})
    assert wrong.status_code == 400 and "max_tokens" in wrong.json()["error"]["message"]
    unknown = ready.http.post("/v1/completions", json=HELLO | {"model": "other"})
    assert unknown.status_code == 404 and unknown.json()["error"]["code"] == "model_not_found"
    assert [one["id"] for one in ready.http.get("/v1/models").json()["data"]] == ["long"]
    assert "generation_tokens_total{" in (metrics := ready.http.get("/metrics").text)
    assert 'replica="' in metrics


def test_a_request_can_be_seen_and_cancelled_wherever_it_runs(ready):
    stream = Stream(ready, "to be cancelled", LONG).running()
    found = ready.http.get(f"/v1/requests/{stream.label}").json()
    assert (found["replica"], found["state"]) == (stream.replica, "running")
    assert ready.http.delete(f"/v1/requests/{stream.label}").json()["cancelled"]
    assert stream.ended().error["code"] == "cancelled"
    assert ready.http.delete("/v1/requests/nobody").status_code == 404


def test_a_client_that_leaves_ends_its_request(ready):
    body = HELLO | {"max_tokens": LONG, "ignore_eos": True, "stream": True}
    with ready.http.stream("POST", "/v1/completions", json=body) as response:
        next(response.iter_lines())
    until(lambda: not ready.http.get("/v1/requests").json()["data"], "the end of the request")


def test_load_brings_a_second_replica_and_a_lost_one_takes_only_its_own_streams(ready):
    streams = [Stream(ready, f"the first {n}", LONG).running() for n in range(4)]
    until(lambda: len(ready.replicas()) == 2, "a second replica")
    names = set()
    while len(names) < 2:  # the router learns of it a moment later
        streams.append(Stream(ready, f"the next {time.monotonic()}", LONG).running())
        names = {one.replica for one in streams}
    victim = streams[-1].replica
    ready.actor(victim).kill()
    for one in streams:
        if one.replica == victim:
            assert one.ended().error["code"] == "replica_lost"
    others = [one for one in streams if one.replica != victim]
    seen = [len(one.events) for one in others]
    until(
        lambda: all(len(s.events) > n for s, n in zip(others, seen, strict=True)), "tokens of all"
    )
    assert ready.http.post("/v1/completions", json=HELLO).status_code == 200
    until(lambda: len(ready.replicas()) == 2, "another replica in place of the lost one")


def test_sigterm_finishes_what_is_open_and_leaves_nothing(ready):
    stream = Stream(ready, "the last one", 2000).running()
    ready.note_family()
    ready.process.send_signal(signal.SIGTERM)
    assert stream.ended().events[-1] == "[DONE]"
    assert ready.process.wait(180) == 0
    until(lambda: not ready.alive(), "the end of all processes")


def test_a_front_that_is_killed_leaves_nothing(tmp_path):
    """While it starts, when there is most that could be left. Until then the key to the cluster
    stands on no command line, where any user of the machine could read it."""
    server = RayServer(tmp_path, "--model", "tiny", "--replicas", 1)
    names = ("raylet", "gcs_server", "ray_serve.sitter")

    def started():
        lines = {one: " ".join(one.cmdline()) for one in server.note_family() if is_alive(one)}
        return all(any(name in line for line in lines.values()) for name in names) and lines

    lines = until(started, "Ray's processes")
    raylet = next(one for one, line in lines.items() if "raylet" in line)
    token = raylet.environ()["RAY_AUTH_TOKEN"]
    assert len(token) == 64 and not any(token in line for line in lines.values())
    server.process.kill()
    server.process.wait()
    until(lambda: not server.alive(), "the end of all processes")
