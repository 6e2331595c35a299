"""Engine and server die, hang, drain: nobody waits for ever, and nothing is left."""

import asyncio
import os
import signal
import socket
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
from serving_process import PATIENCE_S, completion, is_alive, until

from labkit.serving.homes import ProcessHome
from labkit.serving.options import engine_config, parse

ENDLESS = {"max_tokens": 50_000, "ignore_eos": True}
POSIX = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
pytestmark = POSIX


@pytest.fixture
def long(server, long_checkpoint):
    """Starts a server whose answers last as long as a test needs it."""

    def start(*options, **more):
        return server(
            "--model", long_checkpoint, "--served-model-name", "long", "--num-blocks", 4096,
            *options, **more,
        )  # fmt: skip

    return start


def in_thread(work):
    """Runs `work` beside the test; its result is asked for with the function returned."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()

    def result():
        thread.join(PATIENCE_S)
        assert found, "no answer"
        return found[0]

    return result


def waiting(server, count: int):
    def enough():
        return sum(one["state"] == "waiting" for one in server.requests()) == count

    until(enough, f"{count} waiting: {server.requests()}")


def test_05_29_a_killed_engine_is_told_to_everybody_and_replaced(long):
    """Three streams, a whole answer, and three that wait: each hears of it; then all is as new."""
    server = long("--max-num-seqs", 4)
    expected = server.text()
    first = server.engine_pid()
    counted = server.metric("vllm:generation_tokens_total")
    streams = [server.stream(f"s{i}", **ENDLESS).take(4) for i in range(3)]
    whole = in_thread(lambda: server.post("/v1/completions", completion("whole", **ENDLESS)))
    until(lambda: len(server.requests()) == 4, "four requests")
    queued = [server.stream(f"q{i}", **ENDLESS) for i in range(2)]
    queued_whole = in_thread(lambda: server.post("/v1/completions", completion("q", **ENDLESS)))
    waiting(server, 3)
    os.kill(first, signal.SIGKILL)
    for stream in [*streams, *queued]:
        assert stream.rest().error["code"] == "engine_failed" and not stream.is_done
        assert "signal 9" in stream.error["message"]
    for answer in (whole(), queued_whole()):
        assert answer.status_code == 503 and answer.json()["error"]["code"] == "engine_failed"
        assert int(answer.headers["retry-after"]) > 0
    health = server.http.get("/health")
    assert health.status_code == 503 and health.json()["status"] == "restarting"
    assert health.json()["open_requests"] == 0 and server.http.get("/ready").status_code == 503
    refused = server.post("/v1/completions", completion("now"))
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) > 0
    assert refused.json()["error"]["code"] == "engine_down"
    assert server.http.get("/v1/models").status_code == 200 and server.requests() == []
    assert server.delete(streams[0].id)["cancelled"] is False
    assert server.metric("vllm:num_requests_running") == 0
    until(server.is_ready, "another engine")
    assert server.engine_pid() != first and not psutil.pid_exists(first)
    assert server.health()["engine_restarts"] == 1 and server.text() == expected
    assert server.metric("vllm:generation_tokens_total") > counted  # it didn't begin anew
    assert server.metric("labkit:engine_restarts_total") == 1


def test_an_engine_that_hangs_is_replaced(long):
    server = long("--step-timeout", 2, "--max-num-seqs", 2)
    first = server.engine_pid()
    stream = server.stream("a", **ENDLESS).take(3)
    os.kill(first, signal.SIGSTOP)
    beside = in_thread(lambda: server.post("/v1/completions", completion("arrives meanwhile")))
    assert stream.rest().error["code"] == "engine_failed"
    assert "--step-timeout" in stream.error["message"]
    assert beside().status_code == 503
    until(lambda: not psutil.pid_exists(first), "the end of the hanging engine")
    until(server.is_ready, "another engine")
    assert server.text()


def test_a_server_that_was_suspended_goes_on(long):
    """Ctrl-Z and fg, for longer than --step-timeout: no engine is blamed, no client dropped."""
    server = long("--step-timeout", 1, "--max-unsent-tokens", 16)
    engine = server.engine_pid()
    stream = server.stream("a", max_tokens=400, ignore_eos=True).take(3)
    for pid in (engine, server.pid):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3)
    for pid in (server.pid, engine):
        os.kill(pid, signal.SIGCONT)
    assert stream.rest().is_done, stream.error
    assert server.health()["engine_restarts"] == 0 and server.engine_pid() == engine
    stream = server.stream("a", max_tokens=400, ignore_eos=True).take(3)
    os.kill(server.pid, signal.SIGSTOP)  # the engine goes on, and the server has to catch up
    time.sleep(2)
    os.kill(server.pid, signal.SIGCONT)
    assert stream.rest().is_done, stream.error


def test_no_engine_outlives_a_killed_server(long):
    server = long()
    stream = server.stream("a", **ENDLESS).take(3)
    engines = server.note_children()
    assert server.engine_pid() in {engine.pid for engine in engines}
    os.kill(server.pid, signal.SIGKILL)
    assert server.exit_status() == -signal.SIGKILL
    until(lambda: not any(map(is_alive, engines)), "the end of the engine", 30)
    stream.leave()


def test_sigterm_lets_what_is_open_finish_and_refuses_what_comes(long):
    """Also where the engine gets it: systemd, and Ctrl-C of a terminal, signal all processes."""
    server = long()
    asked = {"max_tokens": 400, "ignore_eos": True}
    expected = server.text("a", **asked)
    stream = server.stream("a", **asked).take(3)
    whole = in_thread(lambda: server.text("a", **asked))
    until(lambda: len(server.requests()) == 2, "two requests")
    watching = server.http.send(server.http.build_request("GET", "/live"), stream=True)
    until(lambda: next(watching.iter_lines()), "the page")
    os.kill(server.engine_pid(), signal.SIGTERM)
    os.kill(server.engine_pid(), signal.SIGINT)
    assert os.getsid(server.engine_pid()) != os.getsid(server.pid)  # no terminal's signal at all
    server.process.send_signal(signal.SIGTERM)
    refused = until(lambda: not_answered(server), "a refusal")
    assert refused.status_code == 503 and refused.json()["error"]["code"] == "draining"
    assert int(refused.headers["retry-after"]) > 0
    health = server.http.get("/health")
    assert health.status_code == 503 and health.json()["status"] == "draining"
    assert stream.rest().text() == expected and stream.is_done
    assert whole() == expected
    assert server.exit_status() == 0
    assert "Traceback" not in server.said()
    watching.close()


def not_answered(server):
    """The answer to one more request, if it is a refusal."""
    answer = server.post("/v1/completions", completion("late", max_tokens=1))
    return answer.status_code != 200 and answer


def test_what_takes_longer_than_the_drain_timeout_is_told_so(long):
    server = long("--drain-timeout", 1, "--max-num-seqs", 2)
    running = [server.stream("a", **ENDLESS).take(3)]
    whole = in_thread(lambda: server.post("/v1/completions", completion("b", **ENDLESS)))
    until(lambda: len(server.requests()) == 2, "two requests")
    queued = server.stream("c", **ENDLESS)
    waiting(server, 1)
    server.process.send_signal(signal.SIGTERM)
    for stream in [*running, queued]:
        assert "shutting down" in stream.rest().error["message"] and not stream.is_done
    answer = whole()
    assert answer.status_code == 503 and "shutting down" in answer.json()["error"]["message"]
    assert server.exit_status() == 0 and "Traceback" not in server.said()


def test_who_is_not_in_line_yet_when_the_server_ends_is_told_so(long):
    """Its engine takes no messages."""
    server = long("--drain-timeout", 1, "--step-timeout", 60)
    os.kill(server.engine_pid(), signal.SIGSTOP)
    asked = [completion("b", stream=stream, **ENDLESS) for stream in (False, True)]
    answers = [in_thread(partial(server.post, "/v1/completions", body)) for body in asked]
    until(lambda: num_connections(server) >= 2, "both have come")
    server.process.send_signal(signal.SIGTERM)
    for answer in answers:
        assert answer().status_code == 503 and answer().json()["error"]["code"] == "draining"
    assert server.exit_status() == 0 and "Traceback" not in server.said()


def test_an_engine_that_ends_before_it_has_taken_a_request_is_told_as_that(long):
    """A router must know: the request may be what ended it, and is not for every replica."""
    server = long("--step-timeout", 60)
    os.kill(server.engine_pid(), signal.SIGSTOP)
    answer = in_thread(partial(server.post, "/v1/completions", completion("b")))
    until(server.requests, "it has come")
    os.kill(server.engine_pid(), signal.SIGKILL)
    assert answer().status_code == 503
    assert answer().json()["error"]["code"] == "engine_failed"


def num_connections(server) -> int:
    found = psutil.Process(server.pid).net_connections("tcp")
    return sum(one.status == psutil.CONN_ESTABLISHED for one in found)


def test_the_folder_of_a_process_is_gone_before_its_model_is_there():
    """So that nothing is left to clean up when the API process is killed while it loads."""

    async def story():
        said = []
        home = ProcessHome(engine_config(parse(["--model", "tiny"])), said.append)
        await home.start()
        try:
            async with asyncio.timeout(PATIENCE_S):
                while Path(home.folder).exists():
                    await asyncio.sleep(0.01)
            assert said == []
        finally:
            await home.kill()

    asyncio.run(story())


@pytest.mark.parametrize("loaded", [True, False], ids=["serving", "loading"])
def test_ctrl_c_twice_ends_at_once(long, loaded):
    server = long(ready=loaded)
    assert server.url
    if loaded:
        stream = server.stream("a", **ENDLESS).take(3)
        server.process.send_signal(signal.SIGINT)
        until(lambda: server.health()["status"] == "draining", "draining")
        server.process.send_signal(signal.SIGINT)
        assert server.exit_status() == 130
        stream.leave()
        return
    until(server.note_children, "an engine")
    server.process.send_signal(signal.SIGINT)
    assert server.exit_status() == 0 and "Traceback" not in server.said()


def test_ctrl_c_at_once_before_it_has_an_address(server):
    early = server(ready=False)
    early.process.send_signal(signal.SIGINT)
    assert early.exit_status() != 0 or "Open" in early.said()


def test_a_port_in_use_is_told_in_a_few_lines(server):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failing = server("--port", port, ready=False)
        assert failing.exit_status() == 1
    said = failing.said()
    assert f"127.0.0.1:{port}" in said and f"serve --port {port + 1}" in said
    assert "Traceback" not in said and len(said.splitlines()) <= 3


@pytest.mark.parametrize("model", ["no/such-model", "./no-such-folder", "no such model"])
def test_a_model_that_does_not_exist_is_told_with_the_remedy(server, model):
    variables = {"HF_HUB_OFFLINE": "1"}
    failing = server("--model", model, ready=False, **variables)
    assert failing.exit_status() == 1
    said = failing.said()
    assert model.removeprefix("./") in said and "Traceback" not in said
    assert len(said.splitlines()) <= 3 and said.startswith("FAIL")


def test_a_checkpoint_without_weights_is_told_with_the_remedy(server, chain_checkpoint, tmp_path):
    folder = tmp_path / "broken"
    folder.mkdir()
    for file in chain_checkpoint.iterdir():
        if file.suffix != ".safetensors":
            (folder / file.name).write_bytes(file.read_bytes())
    failing = server("--model", folder, ready=False)
    assert failing.exit_status() == 1
    assert "FAIL" in failing.said() and "safetensors" in failing.said()
    assert "Traceback" not in failing.said()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--port", "70000"], "70000"),
        (["--rung", "fastest"], "fastest"),
        (["--rung", "cached", "--policy", "fair"], "preemptive"),
        (["--max-num-seqs", "0"], "--max-num-seqs"),
        (["--in-process", "--in-thread"], "--in-thread"),
        (["--nonsense"], "--nonsense"),
        (["--device", "paced:H100", "--rung", "static"], "paced:H100"),
    ],
)
def test_options_that_cannot_be_are_told_in_one_line(server, options, named):
    failing = server(*options, ready=False)
    assert failing.exit_status() == 2
    assert named in failing.said() and len(failing.said().splitlines()) == 1
