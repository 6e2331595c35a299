"""What a router with a tokenizer is told of a request."""

import json

import pytest

from labkit.engine.blocks import BlockPool
from labkit.engine.books import Books
from labkit.engine.request import Request
from labkit.fleet.ray_serve.about import UNTOLD_TOKENS, About, Prompts
from labkit.serving.errors import APIError

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@pytest.fixture
def prompts():
    return Prompts({"tiny": "tiny", "other": "tiny"}, 4)


def about(prompts, path=COMPLETIONS, **body):
    return prompts.about(path, json.dumps(body).encode(), "tiny")


def test_hashes_are_those_of_the_engines_blocks(prompts):
    tokens = [5, 6, 7, 8, 9, 10, 11, 12, 13]
    request = Request("r", tokens, 1, cache_salt="salt")
    expected = Books(BlockPool(4, 4)).hashes(request, 2)
    assert about(prompts, prompt=tokens, cache_salt="salt").block_hashes == expected


def test_prompts_that_begin_alike_share_their_first_hashes(prompts):
    first, second = (about(prompts, prompt="12345678" + end) for end in ("abcd", "wxyz"))
    assert first.block_hashes[:2] == second.block_hashes[:2]
    assert first.block_hashes[2:] != second.block_hashes[2:]


def test_a_chat_is_hashed_as_its_template_writes_it(prompts):
    told = about(prompts, CHAT, messages=[{"role": "user", "content": "hello"}], user="ada")
    assert told.num_prompt_tokens == len(told.prompt_token_ids) > len("hello")
    assert told.tenant == "ada"


@pytest.mark.parametrize(
    ("body", "most"), [({}, UNTOLD_TOKENS), ({"max_tokens": 3}, 3), ({"max_tokens": 3, "n": 4}, 12)]
)
def test_the_most_that_may_come_counts(prompts, body, most):
    assert about(prompts, prompt="hello", **body).max_tokens == most


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"prompt": 3}', b'{"messages": []}'])
def test_of_a_body_that_is_no_request_nothing_is_told(prompts, body):
    assert prompts.about(COMPLETIONS, body, "tiny") == About()
    assert prompts.about(CHAT, body, "tiny") == About()


def test_the_model_is_the_one_that_is_named_else_the_first(prompts):
    assert prompts.model(b'{"model": "other"}') == "other"
    assert prompts.model(b"{}") == prompts.model(b"no JSON") == "tiny"
    with pytest.raises(APIError, match="there is no model 'third'") as caught:
        prompts.model(b'{"model": "third"}')
    assert caught.value.status == 404
