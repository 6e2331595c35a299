"""Every rung, and every home of the engine, behind the same HTTP: one text, and honest refusals."""

import pytest
from serving_process import completion, until

from labkit.rungs import RUNGS
from labkit.serving import options

PROMPTS = ["Tea is", "Once upon a time", "x" * 40]
CANNOT = {
    "naive": ["temperature", "n", "logprobs", "logit_bias", "top_k", "priority", "deadline_ms",
              "stop_token_ids", "min_tokens", "repetition_penalty"],
    "static": ["priority", "deadline_ms"],
    "cached": ["priority", "deadline_ms"],
    "paged": ["priority", "deadline_ms"],
    "continuous": ["priority"],
    "preemptive": [],
}  # fmt: skip
VALUES = {
    "temperature": 0.5, "n": 2, "logprobs": 1, "logit_bias": {"5": 1}, "top_k": 3, "priority": 1,
    "deadline_ms": 60_000, "stop_token_ids": [5], "min_tokens": 2, "repetition_penalty": 1.5,
}  # fmt: skip


@pytest.fixture(scope="session")
def expected(shared_server):
    return [text_of(shared_server, prompt) for prompt in PROMPTS]


def text_of(server, prompt) -> str:
    return server.text(prompt, max_tokens=12, ignore_eos=True)


def assert_serves(server, expected):
    assert [text_of(server, prompt) for prompt in PROMPTS] == expected
    streams = [server.stream(p, max_tokens=12, ignore_eos=True) for p in PROMPTS]
    assert [stream.rest().text() for stream in streams] == expected
    assert all(stream.is_done for stream in streams)
    assert server.chat()["choices"][0]["finish_reason"] in ("stop", "length")
    for stop in (expected[1][4:6],):
        stopped = server.complete(PROMPTS[1], max_tokens=12, ignore_eos=True, stop=stop)
        assert stopped["choices"][0]["text"] == expected[1].partition(stop)[0]
    leaving = server.stream("leaves", max_tokens=400, ignore_eos=True).take(2)
    leaving.leave()
    until(lambda: server.request(leaving.id)["state"] == "finished", "the end")
    assert server.request(leaving.id)["finish_reason"] == "abort"
    deleted = server.stream("deleted", max_tokens=400, ignore_eos=True).take(2)
    assert server.delete(deleted.id)["cancelled"] is True
    assert deleted.rest().error["code"] == "cancelled"
    server.wait_until_idle()


@pytest.mark.parametrize("rung", RUNGS)
def test_a_rung_serves_the_same_text_and_refuses_what_it_cannot(server, shared, expected, rung):
    blocks = ["--num-blocks", 64] if rung in ("paged", "continuous") else []
    one = shared if rung == "preemptive" else server("--rung", rung, *blocks)
    assert one.state()["rung"] == rung
    assert_serves(one, expected)
    for name, value in VALUES.items():
        answer = one.post("/v1/completions", completion("hi", **{name: value}))
        if name not in CANNOT[rung]:
            assert answer.status_code == 200, answer.text
            continue
        error = answer.json()["error"]
        assert answer.status_code == 400 and error["param"] == name and name in error["message"]
        assert rung in error["message"]
    too_long = one.post("/v1/completions", completion([5] * 600))
    assert too_long.status_code == 400 and too_long.json()["error"]["param"] == "prompt"
    assert one.text()


@pytest.mark.parametrize("home", ["--in-process", "--in-thread"])
def test_an_engine_in_the_servers_own_process_answers_too(server, expected, home):
    one = server(home, "--max-num-seqs", "4", "--num-blocks", "64")
    assert one.engine_pid() == one.pid and one.note_children() == []
    assert_serves(one, expected)
    answer = one.post("/v1/completions", completion("bad", top_p=-1))
    assert answer.status_code == 400
    stream = one.stream("a", max_tokens=200, ignore_eos=True).take(2)
    one.process.terminate()
    assert stream.rest().is_done
    assert one.exit_status() == 0 and "Traceback" not in one.said()


@pytest.mark.parametrize("home", ["--in-process", "--in-thread"])
def test_a_model_that_cannot_load_ends_the_server_there_too(server, home):
    failing = server(home, "--num-blocks", 4, "--max-model-len", 400, ready=False)
    assert failing.exit_status() == 1
    assert "400" in failing.said() and "Traceback" not in failing.said()


def test_the_attention_can_be_chosen(server, shared):
    assert server("--attention", "torch").text() == shared.text()


def test_an_attention_that_cannot_be_is_refused_before_anything_is_loaded(capsys):
    for line, told in (
        (["--attention", "torch", "--rung", "naive"], "labkit's decoder"),
        (["--attention", "flash"], "invalid choice"),
    ):
        with pytest.raises(SystemExit):
            options.parse(["--model", "tiny", *line])
        assert told in capsys.readouterr().err
