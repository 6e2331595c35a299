"""The models of the repository, with the Python backend's module faked and an engine that waits.

The engine is the real process on a paced device: no torch, no weights, its steps take a card's
time. What isn't about it is told by hand.
"""

import importlib
import json
import sys
import threading
import time

import fake_pb_utils
import pytest

from labkit.fleet.triton_server.repository import Served, config_of
from labkit.serving.messages import Abort, Accepted, Add, Refused, Step, Token

SHAPE = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048,
    "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "eos_token_id": 2, "hidden_act": "silu",
    "tie_word_embeddings": True,
}  # fmt: skip


class Link:
    """In the place of the engine: keeps what it is sent."""

    def __init__(self, config, python, on_message, on_end):
        self.config, self.sent, self.is_closed = config, [], False

    def start(self):
        return None

    def send(self, batch):
        self.sent.append([*batch])

    def close(self):
        self.is_closed = True


@pytest.fixture
def answers(monkeypatch):
    fake_pb_utils.forget()
    monkeypatch.setitem(sys.modules, fake_pb_utils.NAME, fake_pb_utils.module())
    yield importlib.import_module("labkit.fleet.triton_server.answers")
    fake_pb_utils.forget()


@pytest.fixture
def quiet(answers, monkeypatch):
    monkeypatch.setattr(answers, "EngineLink", Link)
    return answers


def args_of(served):
    config = config_of(served)
    told = {key: {"string_value": value} for key, value in config.parameters.items()}
    policy = {"decoupled": config.decoupled}
    return {"model_config": json.dumps({"parameters": told, "model_transaction_policy": policy})}


def started(name, served):
    module = importlib.import_module(f"labkit.fleet.triton_server.models.{name}")
    made = module.TritonPythonModel()
    made.initialize(args_of(served))
    return made


def step(*tokens):
    return Step(0, 0, 0, [*tokens], [], [], 0, 0, 0)


def token(name, token_id, reason=None, error=None):
    return Token(name, token_id, reason, 0.0, None, error)


def test_a_batch_is_one_message_so_that_none_of_it_misses_the_first_step(quiet):
    model = quiet.Model(args_of(Served("m", "dynamic", streams=False)))
    model.ask([fake_pb_utils.Request([1, 2], 5), fake_pb_utils.Request([3], 6, True)])
    (batch,) = model.link.sent
    assert [type(one) for one in batch] == [Add, Add]
    assert [one.prompt_token_ids for one in batch] == [[1, 2], [3]]
    assert [one.params.max_tokens for one in batch] == [5, 6]
    assert [one.params.ignore_eos for one in batch] == [False, True]
    assert len({one.request_id for one in batch}) == 2


def test_continuous_returns_at_once_and_sends_token_by_token(quiet):
    made = started("continuous", Served("m"))
    request = fake_pb_utils.Request([1], 3)
    assert made.execute([request]) is None
    (name,) = made.model.open
    made.model.on_message(Accepted(name))
    made.model.on_message(step(token(name, 7)))
    made.model.on_message(step(token(name, 8, "length")))
    sent = request.sender.sent
    assert [one.tokens() for one in sent] == [[7], [8]]
    assert [one.reason() for one in sent] == ["", "length"]
    assert request.sender.is_over and not made.model.open


def test_a_batch_waits_for_its_last_and_answers_whole(quiet):
    made = started("batched", Served("m", "dynamic", streams=False))
    requests = [fake_pb_utils.Request([1], 1), fake_pb_utils.Request([1], 2)]
    found = []
    thread = threading.Thread(target=lambda: found.extend(made.execute(requests)))
    thread.start()
    while len(made.model.open) < 2:
        time.sleep(0.001)
    short, long = made.model.open
    made.model.on_message(step(token(short, 7, "length"), token(long, 8)))
    assert not found  # the short one has ended, and is not let go
    made.model.on_message(step(token(long, 9, "stop")))
    thread.join(10)
    assert [one.tokens() for one in found] == [[7], [8, 9]]
    assert [one.reason() for one in found] == ["length", "stop"]


def test_what_the_engine_refuses_fails_alone(quiet):
    model = quiet.Model(args_of(Served("m", "dynamic", streams=False)))
    bad, good = model.ask([fake_pb_utils.Request([1], 1), fake_pb_utils.Request([1], 1)])
    first, second = model.open
    model.on_message(Refused(first, "too long"))
    model.on_message(step(token(second, 5, "length")))
    assert bad.whole().error.code == "invalid" and "too long" in bad.whole().error.message
    assert good.whole().tokens() == [5]


def test_too_many_in_the_engines_line_is_told_as_a_matter_of_now(quiet):
    model = quiet.Model(args_of(Served("m")))
    (answer,) = model.ask([fake_pb_utils.Request([1], 1)])
    model.on_message(Refused(*model.open, "256 wait already", busy=True))
    assert answer.error.code == "unavailable"


def test_no_tokens_at_all_are_refused_before_the_engine_is_asked(quiet):
    model = quiet.Model(args_of(Served("m")))
    bad, good = model.ask([fake_pb_utils.Request([1], 0), fake_pb_utils.Request([1], 1)])
    assert bad.error.code == "invalid" and "max_tokens" in bad.error.message
    assert len(model.link.sent[0]) == 1 and not good.ended.is_set()


def test_a_client_that_left_ends_in_the_engine_and_no_other_does(quiet):
    model = quiet.Model(args_of(Served("m")))
    left, stays = fake_pb_utils.Request([1], 9), fake_pb_utils.Request([1], 9)
    model.ask([left, stays])
    first, second = model.open
    left.sender.has_left = True
    model.on_message(step(token(first, 5), token(second, 6)))
    assert model.link.sent[1:] == [[Abort([first])]]
    assert [*model.open] == [second]
    model.on_message(step(token(first, 5), token(second, 6)))  # one more was on its way
    assert [one.tokens() for one in stays.sender.sent] == [[6], [6]]


def test_one_that_cannot_be_reached_ends_in_the_engine_and_no_other_does(quiet, monkeypatch):
    model = quiet.Model(args_of(Served("m")))
    lost, stays = fake_pb_utils.Request([1], 9), fake_pb_utils.Request([1], 9)
    model.ask([lost, stays])

    def broken(*_):
        raise RuntimeError("the response factory is gone")

    monkeypatch.setattr(lost.sender, "send", broken)
    first, second = model.open
    model.on_message(step(token(first, 5), token(second, 6)))
    assert model.link.sent[1:] == [[Abort([first])]] and [*model.open] == [second]
    assert [one.tokens() for one in stays.sender.sent] == [[6]]
    monkeypatch.setattr(stays.sender, "send", broken)
    model.on_end("the engine ended with status -9")
    assert not model.open


def test_when_the_engine_is_gone_all_are_told_and_so_are_those_who_come_later(quiet):
    model = quiet.Model(args_of(Served("m")))
    before, after = fake_pb_utils.Request([1], 9), fake_pb_utils.Request([1], 9)
    model.ask([before])
    model.on_end("the engine ended with status -9")
    model.ask([after])
    for request in (before, after):
        (response,) = request.sender.sent
        assert response.error.code == "unavailable"
        assert "unload the model and load it again" in response.error.message
        assert request.sender.is_over
    assert len(model.link.sent) == 1


def test_an_error_of_the_engine_reaches_its_request(quiet):
    model = quiet.Model(args_of(Served("m")))
    request = fake_pb_utils.Request([1], 9)
    model.ask([request])
    model.on_message(step(token(*model.open, None, "error", "out of blocks")))
    assert request.sender.sent[0].error.code == "internal"


def test_an_engine_that_takes_no_messages_is_told_to_who_asks(quiet, monkeypatch):
    model = quiet.Model(args_of(Served("m")))

    def full(batch):
        raise quiet.EngineFailed("the engine takes no messages")

    monkeypatch.setattr(model.link, "send", full)
    (answer,) = model.ask([fake_pb_utils.Request([1], 9)])
    assert answer.error.code == "unavailable" and not model.open


def test_unloading_fails_what_is_open_and_closes_the_engine(quiet):
    made = started("continuous", Served("m"))
    request = fake_pb_utils.Request([1], 9)
    made.execute([request])
    made.finalize()
    assert made.model.link.is_closed and request.sender.is_over


@pytest.fixture
def paced(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
    return {"model": str(tmp_path), "device": "paced:A100", "dtype": "bfloat16"}


def test_the_real_engine_process_answers_and_ends(answers, paced):
    made = started("batched", Served("m", "dynamic", streams=False, **paced))
    try:
        requests = [fake_pb_utils.Request([5, 6], 3, True), fake_pb_utils.Request([5], 2, True)]
        first, second = made.execute(requests)
        assert len(first.tokens()) == 3 and len(second.tokens()) == 2
        assert (first.reason(), second.reason()) == ("length", "length")
    finally:
        made.finalize()
    assert made.model.link.process.returncode is not None


def test_a_killed_engine_ends_its_streams(answers, paced):
    made = started("continuous", Served("m", **paced))
    try:
        request = fake_pb_utils.Request([5], 1000, True)
        made.execute([request])
        while not request.sender.sent:
            time.sleep(0.01)
        made.model.link.process.kill()
        deadline = time.monotonic() + 20
        while not request.sender.is_over and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "ended with status" in str(request.sender.sent[-1].error)
    finally:
        made.finalize()


def test_a_model_that_cannot_be_loaded_says_why(answers):
    from labkit.fleet.triton_server.engine_link import EngineFailed

    with pytest.raises(EngineFailed, match="there is no model '/nowhere/at-all'"):
        answers.Model(args_of(Served("m", model="/nowhere/at-all")))
