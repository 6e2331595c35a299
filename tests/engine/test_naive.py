"""Rung 1 against `transformers`' own generate, and how requests come and go."""

import pytest

from labkit.engine.naive import NaiveEngine, next_token
from labkit.engine.request import Request
from labkit.measure.generation import generate
from labkit.model import load
from labkit.workbook.fakes import ScriptedModel


@pytest.fixture(scope="module")
def tiny():
    return load("tiny")


def run(engine):
    events = []
    while engine.has_unfinished():
        events += engine.step()
    return events


@pytest.mark.parametrize("message", ["Hi", "한글 🙂", "a" * 40])
def test_greedy_tokens_are_those_of_transformers(tiny, message):
    prompt = tiny.encode_chat(message)
    engine = NaiveEngine(tiny.model, tiny.eos_token_ids)
    engine.add(Request("a", prompt, max_tokens=24, ignore_eos=True))
    ours = [event.token_id for event in run(engine)]
    assert ours == generate(tiny.model, prompt, 24, use_cache=False)
    assert len(set(ours)) > 3  # not one token again and again, which would prove little


def test_next_token_is_the_argmax_of_the_last_row(tiny):
    import torch

    prompt = tiny.encode_chat("Hi")
    logits = tiny.model(torch.tensor([prompt])).logits
    assert next_token(tiny.model, prompt) == int(logits[0, -1].argmax())


def test_two_requests_with_one_id_are_refused_by_name():
    engine = NaiveEngine(ScriptedModel(), [])
    engine.add(Request("same", [3]))
    with pytest.raises(ValueError, match="'same' is already in line"):
        engine.add(Request("same", [4]))
    assert [event.request_id for event in run(engine)] == ["same"] * 16


def test_abort_says_whether_anything_was_cancelled():
    engine = NaiveEngine(ScriptedModel(), [])
    running, waiting = Request("a", [3], max_tokens=3), Request("b", [5], max_tokens=1)
    engine.add(running)
    engine.add(waiting)
    engine.step()
    assert engine.abort("b") is True
    assert engine.abort("b") is False
    assert engine.abort("never there") is False
    assert waiting.finish_reason == "abort"
    assert [event.request_id for event in run(engine)] == ["a", "a"]
    assert engine.abort("a") is False
    assert running.finish_reason == "length"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompt_token_ids": []}, "'a': the prompt has 0 tokens"),
        ({"prompt_token_ids": [1], "max_tokens": 0}, "'a': max_tokens is 0"),
        ({"prompt_token_ids": [1], "max_tokens": -5}, "'a': max_tokens is -5"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_with_the_value(arguments, message):
    with pytest.raises(ValueError, match=message):
        Request("a", **arguments)
