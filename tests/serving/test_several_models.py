"""Several models in one server: who is loaded, who waits, who leaves, and what happens to the rest.

All have caches of 1 GB, which costs nothing until it is used and counts: of 2 GB one model has
room, of 4 GB two.
"""

import json
import os
import shutil
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from serving_process import PATIENCE_S, Server, completion, is_alive, until

ENDLESS = {"max_tokens": 50_000, "ignore_eos": True}
ONE, TWO = ("--model-memory", "2GB"), ("--model-memory", "4GB")
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")


class ModelsServer(Server):
    module = "labkit.fleet.models"

    def model(self, name: str) -> dict:
        """A model as it is listed."""
        return self.http.get(f"/v1/models/{name}").json()

    def is_in(self, name: str, state: str, **more) -> bool:
        told = self.model(name)
        return told["state"] == state and all(told[key] == value for key, value in more.items())

    def until_in(self, name: str, state: str, **more) -> None:
        until(lambda: self.is_in(name, state, **more), f"{name} {state}: {self.model(name)}")

    def loads(self, name: str) -> int:
        return int(self.metric("labkit:model_load_seconds_count", model_name=name))

    def num_loaded(self) -> int:
        """Models that are loaded, or have not left yet."""
        loads = self.metric("labkit:model_load_seconds_count")
        return int(loads - self.metric("labkit:model_unloads_total"))

    def ask(self, model: str, **body):
        return self.post("/v1/completions", completion("hello", model=model, **body))

    def keep_busy(self, model: str) -> str:
        """An answer without end, which nobody reads; its id."""
        body = completion("a", model=model, **ENDLESS)
        going = self.post("/v1/completions", body, prefer="respond-async")
        assert going.status_code == 202, going.text
        return going.json()["id"]

    def engine_of(self, name: str) -> int | None:
        return self.health()["models"][name]["engine_pid"]


@pytest.fixture(scope="module")
def checkpoints(long_checkpoint, tmp_path_factory):
    """The same small model four times: `long`, `other` and `broken`, and `huge`, which says that
    it has a million layers."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("other", "broken", "huge"):
        shutil.copytree(long_checkpoint, folder / name)
    config = json.loads((folder / "huge/config.json").read_text(encoding="utf-8"))
    config |= {"num_hidden_layers": 10**6}
    (folder / "huge/config.json").write_text(json.dumps(config), encoding="utf-8")
    return {"long": long_checkpoint} | {n: folder / n for n in ("other", "broken", "huge")}


@pytest.fixture(scope="module")
def start(checkpoints, tmp_path_factory):
    """Starts servers of some of the models; they live until the last test of this file."""
    started = []

    def start(names, *options, ready=True, **variables) -> ModelsServer:
        models = [part for n in names for part in ("--model", f"{n}={checkpoints[n]}")]
        folder = tmp_path_factory.mktemp("server")
        started.append(ModelsServer(folder, [*models, *options], variables))
        if ready:
            started[-1].wait_until_ready()
        return started[-1]

    yield start
    for one in started:
        one.stop()
    for one in started:
        one.assert_nothing_is_left()


@pytest.fixture(scope="module")
def narrow_server(start, checkpoints, tmp_path_factory):
    """Room for one; what engines leave behind would lie in `files`."""
    files = tmp_path_factory.mktemp("files")
    alias = f"alias={checkpoints['long']}"
    server = start(
        ("long", "other", "broken", "huge"), *ONE, "--model", alias, TMPDIR=str(files)
    )  # fmt: skip
    server.files = files
    return server


@pytest.fixture
def narrow(narrow_server):
    """Nobody is served, and nobody waits; `long` is there."""
    assert narrow_server.ask("long").status_code == 200
    yield narrow_server
    narrow_server.cancel_all()
    until(lambda: not narrow_server.requests(), "the end of all requests")
    narrow_server.note_children()


def at_once(server, count: int, model: str, **body):
    """So many requests at once, in threads; their futures."""
    pool = ThreadPoolExecutor(count)
    return [pool.submit(server.ask, model, **body) for _ in range(count)]


# ---- what is there, and what isn't


def test_every_name_is_listed_with_its_state_and_bytes(narrow):
    listed = {one["id"]: one for one in narrow.http.get("/v1/models").json()["data"]}
    assert {*listed} == {"long", "alias", "other", "broken", "huge"}
    assert [listed[n]["state"] for n in ("long", "alias", "other")] == ["ready", "ready", "idle"]
    assert listed["alias"]["root"] == "long" and listed["alias"]["bytes"] == listed["long"]["bytes"]
    assert 10**9 < listed["long"]["bytes"] < 2 * 2**30 and listed["long"]["progress"] == 1
    assert listed["long"]["max_model_len"] == 65536 and listed["other"]["progress"] == 0
    assert narrow.model("other") == listed["other"]
    assert narrow.http.get("/v1/models/none").status_code == 404


def test_two_names_of_one_checkpoint_are_one_engine(narrow):
    before = narrow.loads("long"), narrow.engine_of("long")
    answers = [narrow.ask(name).json() for name in ("long", "alias")]
    assert [answer["model"] for answer in answers] == ["long", "long"]
    assert answers[0]["choices"] == answers[1]["choices"]
    assert (narrow.loads("long"), narrow.engine_of("long")) == before


def test_12_an_unknown_model_is_404_and_no_name_is_the_first(narrow):
    for path in ("/v1/completions", "/v1/chat/completions"):
        body = {"model": "gpt", "prompt": "a"} if "chat" not in path else {
            "model": "gpt", "messages": [{"role": "user", "content": "a"}]}  # fmt: skip
        answer = narrow.post(path, body)
        error = answer.json()["error"]
        assert answer.status_code == 404 and error["param"] == "model", error
        assert "'gpt'" in error["message"] and "'other'" in error["message"]
    assert narrow.post("/v1/completions", completion("a")).json()["model"] == "long"
    assert narrow.chat(model="alias")["model"] == "long"


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"null", b'{"model": 5}', b'{"model": "other"}', b'{"model": "other", "n": 0}',
     b'{"model": "other", "prompt": ""}', b'{"model": "other", "prompt": "a", "best": 1}',
     b"\xff\xfe", b"[" * 10_000, b'{"model": "other", "prompt": "a", "max_tokens": 0}',
     b'{"model": "other", "prompt": "a", "top_p": -1}',
     b'{"model": "other", "prompt": "a", "max_tokens": NaN}'],
)  # fmt: skip
def test_13_a_bad_body_is_told_so_and_loads_nothing(narrow, body):
    headers = {"content-type": "application/json"}
    before = narrow.loads("other")
    answer = narrow.http.post("/v1/completions", content=body, headers=headers)
    assert answer.status_code == 400 and answer.json()["error"]["message"]
    assert narrow.is_in("other", "idle") and narrow.loads("other") == before


def test_13_a_body_of_50_mb_is_refused(narrow):
    body = b'{"prompt": "' + b"a" * 50_000_000 + b'"}'
    headers = {"content-type": "application/json"}
    for content in (body, iter([body])):  # with its length, and without
        answer = narrow.http.post("/v1/completions", content=content, headers=headers)
        assert answer.status_code == 413 and "2,097,152" in answer.json()["error"]["message"]


def test_a_model_that_can_never_fit_is_refused_with_both_numbers(narrow):
    answer = narrow.ask("huge")
    error = answer.json()["error"]
    assert answer.status_code == 400 and error["code"] == "model_too_large"
    assert error["param"] == "model" and "2.15 GB" in error["message"], error
    assert narrow.is_in("long", "ready") and narrow.is_in("huge", "idle")
    assert "huge" in narrow.said() and "too much" in narrow.said()


# ---- one has to leave for another


def test_32_who_streams_is_not_disturbed_and_ten_who_wait_make_one_load(narrow):
    before, engine = narrow.loads("other"), narrow.engine_of("long")
    stream = narrow.stream(model="long", **ENDLESS).take(3)
    asked = at_once(narrow, 10, "other", max_tokens=5)
    narrow.until_in("other", "waiting", waiting_requests=10)
    assert stream.take(200).error is None and narrow.engine_of("long") == engine
    assert narrow.http.get("/health").status_code == 200
    stream.leave()
    answers = [one.result(PATIENCE_S) for one in asked]
    assert [answer.status_code for answer in answers] == [200] * 10
    assert {answer.json()["model"] for answer in answers} == {"other"}
    assert len({answer.json()["choices"][0]["text"] for answer in answers}) == 1
    assert narrow.loads("other") == before + 1 and narrow.is_in("long", "idle")
    assert not is_alive_pid(engine)
    assert narrow.metric("labkit:model_unloads_total", model_name="long") >= 1
    assert narrow.metric("vllm:generation_tokens_total", model_name="long") > 200  # it stays


def is_alive_pid(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


def test_who_waits_and_leaves_is_forgotten_and_nothing_is_loaded_for_them(narrow):
    before, going = narrow.loads("other"), narrow.keep_busy("long")
    connections = [ask_and_wait(narrow, "other", streaming) for streaming in (True, False)]
    narrow.until_in("other", "waiting", waiting_requests=2)
    for connection in connections:
        connection.close()
    until(lambda: narrow.model("other")["waiting_requests"] == 0, "nobody waiting")
    assert narrow.delete(going)["cancelled"] is True
    narrow.until_in("other", "idle")
    assert narrow.loads("other") == before and narrow.is_in("long", "ready")


def ask_and_wait(server, model: str, streaming: bool) -> socket.socket:
    content = json.dumps(completion("a", model=model, stream=streaming)).encode()
    address = server.http.base_url.host, server.http.base_url.port
    connection = socket.create_connection(address, PATIENCE_S)
    connection.sendall(
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
        b"\r\nContent-Length: %d\r\n\r\n%s" % (len(content), content)
    )
    return connection


def test_the_page_is_there_and_shows_the_first_model_loaded_or_not(narrow_server):
    server = narrow_server
    assert server.ask("other").status_code == 200
    server.until_in("long", "idle")
    assert "<html" in server.http.get("/").text
    assert server.http.get("/page/main.js").status_code == 200
    until(lambda: server.state()["status"] == "idle", "the end of its process")
    state = server.state()
    assert state["model"] == "long" and "the next request" in state["detail"]


def test_a_request_that_was_let_go_keeps_its_model_until_it_ends(narrow):
    going = narrow.keep_busy("long")
    asked = at_once(narrow, 1, "other")[0]
    narrow.until_in("other", "waiting")
    until(lambda: narrow.request(going)["output_tokens"] > 50, "50 tokens")
    assert narrow.is_in("other", "waiting")
    assert narrow.delete(going)["cancelled"] is True
    assert asked.result(PATIENCE_S).status_code == 200
    assert narrow.request(going)["state"] == "finished"  # remembered, though its model has left


def test_33_a_deadline_counts_while_the_model_is_waited_for(narrow):
    going = narrow.keep_busy("long")
    answer = narrow.ask("other", deadline_ms=300)
    assert answer.status_code == 408 and answer.json()["error"]["code"] == "deadline"
    assert narrow.delete(going)["cancelled"] is True


def test_a_load_that_fails_is_told_to_all_who_wait_and_tried_again(narrow, checkpoints):
    weights = checkpoints["broken"] / "model.safetensors"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:1000])
    answers = [one.result(PATIENCE_S) for one in at_once(narrow, 3, "broken")]
    for answer in answers:
        error = answer.json()["error"]
        assert answer.status_code == 503 and error["code"] == "model_load_failed", error
        assert "model.safetensors" in error["message"]
        assert answer.headers["x-should-retry"] == "false"
    assert narrow.is_in("broken", "idle") and narrow.is_in("long", "ready")
    assert narrow.metric("labkit:model_load_failures_total", model_name="broken") >= 1
    weights.write_bytes(kept)
    assert narrow.ask("broken").status_code == 200


def test_what_is_unloaded_leaves_neither_process_nor_file(narrow):
    api = psutil.Process(narrow.pid)
    until(lambda: narrow.num_loaded() == 1, "one model")
    before = files_of(api)
    assert narrow.ask("other").status_code == 200
    until(lambda: narrow.num_loaded() == 1, "one model")
    assert files_of(api) == before and len(api.children()) == 1
    assert [*narrow.files.glob("labkit-*")] == []


def files_of(process: psutil.Process) -> int:
    """How many files it has open, connections of clients aside."""
    return process.num_fds() - len(process.net_connections("tcp"))


# ---- what can be seen


def test_names_in_metrics_are_those_of_the_served_models(narrow):
    for number in range(40):
        assert narrow.ask(f"unknown-{number}").status_code == 404
    lines = narrow.http.get("/metrics").text.splitlines()
    names = {line.split('model_name="')[1].split('"')[0] for line in lines if "model_name=" in line}
    assert names <= {"long", "other", "broken", "huge"}
    told = [line for line in lines if line.startswith("# TYPE ")]
    assert len(told) == len({*told})
    assert narrow.metric("labkit:requests_refused_total", status="404") >= 40
    assert narrow.metric("labkit:model_memory_bytes") == 2 * 2**30


def test_requests_of_all_models_are_listed_and_ended_by_id(narrow):
    stream = narrow.stream(model="long", **ENDLESS).take(2)
    assert [(one["id"], one["model"]) for one in narrow.requests()] == [(stream.id, "long")]
    assert narrow.delete(stream.id)["cancelled"] is True
    assert stream.rest().error["code"] == "cancelled"
    assert narrow.http.delete("/v1/requests/none").status_code == 404


def test_the_document_has_what_several_models_have(narrow):
    document = narrow.http.get("/openapi.json").json()
    assert {"/v1/completions", "/v1/models", "/health"} <= {*document["paths"]}
    assert "waiting_requests" in document["components"]["schemas"]["Model"]["properties"]
    assert "models" in document["components"]["schemas"]["Health"]["properties"]


# ---- too many, and endings


def test_33_no_more_wait_than_may_and_who_has_waited_long_is_told(start):
    server = start(("long", "other"), *ONE, "--max-queued-requests", 2, "--model-wait", 4)
    going = server.keep_busy("long")
    asked = at_once(server, 2, "other")
    server.until_in("other", "waiting", waiting_requests=2)
    refused = server.ask("other")
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) > 0
    assert "'other'" in refused.json()["error"]["message"]
    for one in asked:
        answer = one.result(PATIENCE_S)
        error = answer.json()["error"]
        assert answer.status_code == 503 and error["code"] == "models_busy", error
        assert int(answer.headers["retry-after"]) > 0 and "long" in error["message"]
    assert server.delete(going)["cancelled"] is True and server.loads("other") == 0


def test_engines_die_alone_and_all_end_with_the_server(start):
    """One engine is killed, and comes back; then the server is killed, and both engines end."""
    server = start(("long", "other"), *TWO)
    assert server.ask("other").status_code == 200
    streams = {name: server.stream(model=name, **ENDLESS).take(3) for name in ("long", "other")}
    killed = server.engine_of("other")
    os.kill(killed, signal.SIGKILL)
    assert streams["other"].rest().error["code"] == "engine_failed"
    assert streams["long"].take(20).error is None
    assert server.http.get("/health").status_code == 200
    until(lambda: server.engine_of("other") not in (None, killed), "another engine")
    assert server.ask("other").status_code == 200 and server.loads("other") == 1
    assert server.health()["models"]["other"]["engine_restarts"] == 1
    assert server.health()["models"]["long"]["engine_restarts"] == 0
    engines = server.note_children()
    os.kill(server.pid, signal.SIGKILL)
    assert server.exit_status() == -signal.SIGKILL
    until(lambda: not any(map(is_alive, engines)), "the end of both engines", 30)


def test_sigterm_lets_all_models_finish_and_tells_those_who_wait(start):
    server = start(("long", "other", "broken"), *TWO)
    asked = {"max_tokens": 600, "ignore_eos": True}
    assert server.ask("other").status_code == 200
    streams = [server.stream(model=name, **asked).take(3) for name in ("long", "other")]
    waiting = at_once(server, 1, "broken")[0]
    server.until_in("broken", "waiting")
    server.process.send_signal(signal.SIGTERM)
    answer = waiting.result(PATIENCE_S)
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "draining"
    for stream in streams:
        assert stream.rest().is_done and stream.reasons() == {0: "length"}
    assert server.exit_status() == 0 and "Traceback" not in server.said()


def test_ctrl_c_twice_ends_all_engines_at_once_also_one_that_loads(start):
    server = start(("long", "other"), *TWO)
    stream = server.stream(model="long", **ENDLESS).take(3)
    threading.Thread(target=lambda: quietly(server.ask, "other"), daemon=True).start()
    server.until_in("other", "loading")
    until(lambda: len(server.note_children()) == 2, "a second engine")
    server.process.send_signal(signal.SIGINT)
    until(lambda: server.health()["status"] == "draining", "draining")
    server.process.send_signal(signal.SIGINT)
    assert server.exit_status() == 130
    stream.leave()


def quietly(work, *arguments) -> None:
    try:
        work(*arguments)
    except Exception:  # its server was ended
        return


@pytest.mark.parametrize(
    ("names", "options", "told"),
    [
        (("huge",), ONE, "2.15 GB"),
        (("long", "missing"), TWO, "missing"),
    ],
)
def test_what_cannot_be_served_is_told_at_the_start(start, checkpoints, names, options, told):
    checkpoints.setdefault("missing", "no-such-folder/anywhere/at all")
    failing = start(names, *options, ready=False, HF_HUB_OFFLINE="1")
    assert failing.exit_status() == 1
    said = failing.said()
    assert told in said and "FAIL" in said and "Traceback" not in said
