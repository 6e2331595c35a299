"""What is written down of a request, and counting against transformers' own loop."""

import pytest

from labkit.engine.naive import NaiveEngine
from labkit.engine.request import Request
from labkit.measure.generation import count_forwards, deliver, generate, seconds_by_position
from labkit.measure.work import token_forwards
from labkit.model import load
from labkit.model.detokenizer import Detokenizer
from labkit.workbook.fakes import ByteTokenizer, ScriptedModel


@pytest.fixture(scope="module")
def tiny():
    return load("tiny")


def test_streaming_moves_the_first_text_and_nothing_else():
    """One second a token on the scripted clock: four tokens, four bytes of text."""
    model, shown = ScriptedModel(), []
    streamed, unstreamed = deliver(
        NaiveEngine(model, [], clock=model.clock),
        Detokenizer(ByteTokenizer()),
        Request("a", [3], max_tokens=4),
        show=shown.append,
        clock=model.clock,
    )
    assert streamed.token_times == unstreamed.token_times == [1.0, 2.0, 3.0, 4.0]
    assert streamed.text == unstreamed.text == "".join(shown)
    assert [when for when, _ in streamed.pieces] == [1.0, 2.0, 3.0, 4.0]
    assert [when for when, _ in unstreamed.pieces] == [4.0]
    assert (streamed.first_text, unstreamed.first_text) == (1.0, 4.0)
    assert streamed.last_text == unstreamed.last_text == 4.0


@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("num_tokens", [1, 2, 9])
def test_the_formula_is_what_transformers_computes(tiny, num_tokens, use_cache):
    prompt = tiny.encode_chat("Hi")
    with count_forwards(tiny.model) as counted:
        generate(tiny.model, prompt, num_tokens, use_cache)
    assert counted.passes == num_tokens
    assert counted.tokens == token_forwards(len(prompt), num_tokens, use_cache)


def test_counting_ends_with_the_block(tiny):
    with count_forwards(tiny.model) as counted:
        generate(tiny.model, [1, 2], 1, False)
    before = counted.tokens
    generate(tiny.model, [1, 2], 1, False)
    assert counted.tokens == before == 2


def test_each_position_is_timed_on_that_many_tokens():
    lengths = []
    seconds_by_position(lambda model, ids: lengths.append(len(ids)), None, [0] * 9, [2, 5], 3)
    assert lengths == [2, 2, 2, 2, 5, 5, 5]
