"""shared/cases over HTTP, those about text, bad input, identity and sampling; named after them."""

import pytest
from serving_process import Stream, completion, until

HALF = "\ufffd"
CHAIN = "ď€b😀c"  # what follows "a"


def pieces(stream):
    """The texts of a stream, one for each chunk."""
    return [c.get("text", "") for chunk in stream.rest().chunks for c in chunk["choices"]]


def test_01_a_character_of_several_tokens_comes_whole(chain):
    stream = chain.stream("a", max_tokens=50)
    texts = [text for text in pieces(stream) if text]
    assert texts == [*CHAIN]
    assert chain.text("a", max_tokens=50) == CHAIN and stream.reasons() == {0: "stop"}


@pytest.mark.parametrize("max_tokens", [1, 3, 4, 7, 8, 9])
def test_02_an_answer_that_ends_inside_a_character_is_flushed_once(chain, max_tokens):
    cut = CHAIN.encode()[:max_tokens]
    stream = chain.stream("a", max_tokens=max_tokens)
    assert "".join(pieces(stream)) == cut.decode(errors="replace")
    assert stream.text().count(HALF) == 1 and stream.text().endswith(HALF)
    assert stream.is_done and stream.reasons() == {0: "length"}
    assert chain.text("a", max_tokens=max_tokens) == stream.text()


@pytest.mark.parametrize("cut_at", ["EFGHIJ", "GHI", "J", "HIJ"])
def test_03_nothing_of_a_stop_string_is_sent(chain, cut_at):
    expected = "EFGHIJ"[: "EFGHIJ".index(cut_at)]
    stream = chain.stream("D", max_tokens=50, stop=["no such", cut_at])
    assert "".join(pieces(stream)) == expected and stream.reasons() == {0: "stop"}
    answer = chain.complete("D", max_tokens=50, stop=cut_at)["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == (expected, "stop")


def test_03_no_more_is_held_back_than_what_may_become_a_stop_string(chain):
    stream = chain.stream("D", max_tokens=50, stop=["FGX", "GHIJK"])
    assert [text for text in pieces(stream) if text] == ["E", "F", "GHIJ"]
    assert stream.reasons() == {0: "stop"}


def test_03_a_stopped_answer_holds_nothing_any_more(chain):
    stream = chain.stream("0", max_tokens=60_000, stop="890")
    assert stream.rest().text() == "1234567"
    assert until(lambda: chain.request(stream.id)["state"] == "finished", "the end")
    chain.wait_until_idle()


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_04_usage_comes_last_and_only_if_it_is_asked_for(chain, path):
    body = {"max_tokens": 50, "temperature": 0}
    body |= {"prompt": "a"} if path == "/v1/completions" else chat_body()
    counts = []
    for options in (None, {"include_usage": False}, {"include_usage": True}):
        asked = body | {"stream": True, "stream_options": options}
        stream = Stream(chain, path, asked).rest()
        assert stream.is_done
        told = [chunk for chunk in stream.chunks if chunk.get("usage") or not chunk["choices"]]
        counts.append(len(told))
    assert counts == [0, 0, 1] and told == [stream.chunks[-1]] and told[0]["choices"] == []
    usage, whole = told[0]["usage"], chain.post(path, body).json()["usage"]
    assert usage["completion_tokens"] == whole["completion_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def chat_body() -> dict:
    return {"messages": [{"role": "user", "content": "hi"}]}


def test_06_alternatives_are_decoded_alone_and_bring_their_own_bytes(chain):
    """The chosen token is half a character, and so is the likeliest after it."""
    body = chat_body() | {"logprobs": True, "top_logprobs": 5, "temperature": 0, "max_tokens": 3}
    body |= {"logit_bias": {token_of(0xC4): 100}}
    found = chain.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
    assert [(entry["bytes"], entry["token"]) for entry in found] == [([0xC4], HALF)] * 3
    assert [entry["top_logprobs"][0]["bytes"] for entry in found] == [[ord("D")], [0x8F], [0x8F]]
    for entry in found:
        top = entry["top_logprobs"]
        assert len({bytes(one["bytes"]) for one in top}) == len(top) == 5
        assert [one["token"] for one in top] == [decoded(one["bytes"]) for one in top]
        logprobs = [one["logprob"] for one in top]
        assert logprobs == sorted(logprobs, reverse=True)


def decoded(own_bytes: list[int]) -> str:
    return bytes(own_bytes).decode(errors="replace")


def token_of(byte: int) -> str:
    from labkit.model.tiny import tiny_backend
    from labkit.serving.text import byte_of_letter

    letter = next(letter for letter, its_byte in byte_of_letter().items() if its_byte == byte)
    return str(tiny_backend().token_to_id(letter))


@pytest.mark.parametrize("stream", [False, True])
def test_07_one_output_token_must_fit_behind_the_prompt(shared, stream):
    answers = []
    for length in (511, 512, 513):
        body = completion([5] * length, max_tokens=1, ignore_eos=True, stream=stream)
        answers.append(shared.post("/v1/completions", body))
    assert [answer.status_code for answer in answers] == [200, 400, 400]
    for answer, length in zip(answers[1:], (512, 513), strict=True):
        error = answer.json()["error"]
        assert str(length) in error["message"] and "512" in error["message"]
        assert error["param"] == "prompt" and error["code"] == "context_length_exceeded"
    assert shared.text()


def test_07_a_default_that_nobody_asked_for_refuses_no_prompt(shared):
    answer = shared.complete([5] * 508, max_tokens=None, ignore_eos=True)
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["choices"][0]["finish_reason"] == "length"
    assert shared.complete(max_tokens=None, ignore_eos=True)["usage"]["completion_tokens"] == 16


def test_08_a_max_model_len_that_the_pool_cannot_hold_is_refused_at_start(server):
    failing = server("--num-blocks", 4, "--max-model-len", 400, ready=False)
    assert failing.exit_status() == 1
    assert "400" in failing.said() and "64" in failing.said() and "Traceback" not in failing.said()


@pytest.mark.parametrize("prompt", ["", [""], ["a", ""], [], [[]], [[], [1]]])
def test_09_an_empty_prompt_is_refused_and_the_engine_lives(shared, prompt):
    engine_pid = shared.engine_pid()
    answer = shared.post("/v1/completions", completion(prompt))
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"
    assert shared.text() and shared.engine_pid() == engine_pid


def test_10_a_bad_request_beside_a_good_stream_fails_alone(shared):
    expected = shared.text("good", max_tokens=100, ignore_eos=True)
    stream = shared.stream("good", max_tokens=100, ignore_eos=True).take(3)
    answer = shared.post("/v1/completions", completion("bad", top_p=-1))
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "top_p"
    assert stream.rest().text() == expected and stream.is_done


def test_11_a_temperature_near_0_gives_text_and_no_nan(chain, shared):
    assert chain.text("a", temperature=1e-4, max_tokens=50) == CHAIN
    answer = shared.complete("warm", temperature=1e-4, logprobs=2, ignore_eos=True)
    found = answer["choices"][0]["logprobs"]["token_logprobs"]
    assert len(found) == 8 and all(value <= 0 for value in found) and answer["choices"][0]["text"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_12_an_unknown_model_is_404(shared, path):
    body = chat_body() | {"model": "gpt"} if "chat" in path else completion("a", model="gpt")
    answer = shared.post(path, body)
    assert answer.status_code == 404 and answer.json()["error"]["param"] == "model"
    assert "'gpt'" in answer.json()["error"]["message"]


def test_14_two_requests_with_one_label_each_get_their_own_text(chain):
    texts = {"a": CHAIN, "D": "EFGHIJ"}
    streams = [chain.stream(p, max_tokens=50, request_id="same") for p in texts]
    held = [chain.request(stream.id)["label"] for stream in streams]
    assert [s.rest().text() for s in streams] == [*texts.values()] and held == ["same", "same"]
    assert streams[0].id != streams[1].id
    long = [chain.stream("0", max_tokens=60_000, request_id="same").take(1) for _ in range(2)]
    assert sum(one["label"] == "same" for one in chain.requests()) == 2
    for one in long:
        one.leave()


SEEDED = {"temperature": 1.0, "seed": 7, "ignore_eos": True}


def test_15_two_answers_with_one_seed_differ_and_the_stream_ends_with_the_last(shared):
    answer = shared.complete("tea", n=2, max_tokens=20, **SEEDED)
    texts = [choice["text"] for choice in answer["choices"]]
    assert texts[0] != texts[1] and [c["index"] for c in answer["choices"]] == [0, 1]
    assert answer["usage"]["completion_tokens"] == 40 and answer["usage"]["prompt_tokens"] == 3
    stream = shared.stream("tea", n=2, max_tokens=20, **SEEDED).rest()
    assert [stream.text(0), stream.text(1)] == texts and stream.is_done
    assert stream.reasons() == {0: "length", 1: "length"}


def test_15_the_first_of_several_answers_may_end_long_before_the_last(shared):
    """With a stop string that only one of the two meets."""
    both = shared.complete("tea", n=2, max_tokens=40, **SEEDED)["choices"]
    first, second = (choice["text"] for choice in both)
    stop = next(first[i : i + 3] for i in range(1, 37) if first[i : i + 3] not in second)
    stream = shared.stream("tea", n=2, max_tokens=40, stop=stop, **SEEDED).rest()
    assert stream.reasons() == {0: "stop", 1: "length"} and stream.is_done
    assert (stream.text(0), stream.text(1)) == (first.partition(stop)[0], second)


def test_16_a_seeded_answer_is_the_same_alone_in_a_batch_and_after_a_preemption(shared, single):
    asked = {"max_tokens": 300, **SEEDED}
    alone = shared.text("seeded", **asked)
    others = [shared.stream(f"other {i}", max_tokens=200, temperature=1) for i in range(3)]
    assert shared.stream("seeded", **asked).rest().text() == alone
    for other in others:
        other.rest()
    disturbed = single.stream("seeded", priority=5, **asked).take(3)
    for number in range(3):
        single.text(f"urgent {number} " * 9, priority=-number)
    assert disturbed.rest().text() == alone
    assert single.request(disturbed.id)["preemptions"] >= 1


def test_06_offsets_count_the_characters_of_the_text(chain):
    """Half a character and a special token are no character of their own."""
    found = chain.complete("a", max_tokens=50, logprobs=1)["choices"][0]
    offsets = found["logprobs"]["text_offset"]
    assert found["text"] == CHAIN and offsets[-1] == len(CHAIN)
    assert [found["text"][offsets[i] :][:1] for i in (0, 2, 5, 6)] == ["ď", "€", "b", "😀"]
