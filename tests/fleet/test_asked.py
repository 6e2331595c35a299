"""What a router reads of a request without a tokenizer."""

import json

from hypothesis import given
from hypothesis import strategies as st

from labkit.fleet.router import asked
from labkit.fleet.router.asked import BLOCK_BYTES, MOST_HASHED

CHAT = "/v1/chat/completions"


def read(body, path="/v1/completions", **headers):
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    return asked.read(path, given, payload, b"x-session-id")


def common(one, other):
    pairs = zip(one.block_hashes, other.block_hashes, strict=False)
    return sum(a == b for a, b in pairs)


@given(st.text(min_size=0, max_size=600), st.text(max_size=400), st.text(max_size=400))
def test_prompts_share_the_hashes_of_the_blocks_that_they_begin_with(start, one, other):
    first, second = read({"prompt": start + one}), read({"prompt": start + other})
    alike = 0
    for a, b in zip(first.prompt, second.prompt, strict=False):
        if a != b:
            break
        alike += 1
    assert common(first, second) == alike // BLOCK_BYTES


def test_the_next_turn_of_a_conversation_begins_like_the_last():
    said = [{"role": "user", "content": "a" * 300}, {"role": "assistant", "content": "b" * 300}]
    before = read({"messages": said}, CHAT)
    after = read({"messages": [*said, {"role": "user", "content": "more"}]}, CHAT)
    assert common(before, after) >= len(before.block_hashes) - 1 > 3


def test_what_shares_no_cache_shares_no_hash():
    prompt = "x" * 500
    alone = read({"prompt": prompt})
    others = [
        read({"prompt": prompt, "model": "m"}), read({"prompt": prompt, "cache_salt": "s"}),
        read({"prompt": prompt}, CHAT),
    ]  # fmt: skip
    assert all(common(alone, other) == 0 for other in others)
    assert common(alone, read({"prompt": prompt, "temperature": 1})) == len(alone.block_hashes)


def test_a_huge_prompt_is_hashed_up_to_a_limit():
    assert len(read({"prompt": "x" * 1_000_000}).block_hashes) == MOST_HASHED // BLOCK_BYTES


def test_lengths_are_estimates_that_grow_with_the_request():
    assert len(read({"prompt": "word " * 400}).prompt_token_ids) == 500
    assert len(read({"prompt": [1000] * 400}).prompt_token_ids) in range(400, 700)
    assert read({"max_tokens": 7, "n": 3}).max_tokens == 21
    assert read({"max_tokens": 7, "max_completion_tokens": 9}).max_tokens == 9
    assert read({"max_tokens": -5}).max_tokens == 0
    assert read({}).max_tokens == asked.UNTOLD_TOKENS


def test_a_session_is_that_of_the_header_else_of_the_user():
    assert read({"user": "u"}, x_session_id="s").session == "s"
    assert read({"user": "u"}).session == read({"user": "u"}).tenant == "u"
    assert read({}).session == ""


def test_only_what_stores_nothing_may_be_repeated():
    assert read({}, CHAT).may_repeat
    assert not read({}, "/v1/responses").may_repeat
    assert not read({}, prefer="respond-async").may_repeat


@given(st.binary(max_size=50))
def test_any_body_can_be_asked_for(payload):
    found = read(payload)
    assert found.max_tokens >= 0 and found.block_hashes == []
