"""OpenAI's own client against the server; the same tokens as the engine gives in this process."""

import asyncio

import openai
import pytest
from serving_process import PATIENCE_S

from labkit.model.sampling_params import SamplingParams

MESSAGES = [{"role": "user", "content": "How do you make tea?"}]
GREEDY = {"temperature": 0, "max_tokens": 20}
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 5, "max_tokens": 20}


@pytest.fixture(scope="module")
def client(shared_server):
    with sdk(shared_server) as one:
        yield one


def sdk(server, **options) -> openai.OpenAI:
    options = {"api_key": "none", "max_retries": 0, "timeout": PATIENCE_S} | options
    return openai.OpenAI(base_url=f"{server.url}/v1", **options)


def extra(**fields) -> dict:
    return {"extra_body": fields}


def of_engine(engine, prompt, **params):
    return engine.generate(prompt, SamplingParams(**params))[0].outputs


def test_models(client):
    (model,) = client.models.list().data
    assert model.id == "tiny" and client.models.retrieve("tiny") == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt")


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_chat_streamed_or_not_says_what_the_engine_says(client, engine, params):
    whole = client.chat.completions.create(model="tiny", messages=MESSAGES, **params)
    (expected,) = of_engine(engine, engine.encode_chat(MESSAGES[0]["content"]), **params)
    choice = whole.choices[0]
    assert (choice.message.role, choice.message.content) == ("assistant", expected.text)
    assert choice.finish_reason == expected.finish_reason
    assert whole.usage.completion_tokens == len(expected.token_ids)
    assert whole.usage.prompt_tokens == len(engine.encode_chat(MESSAGES[0]["content"]))
    chunks = [*client.chat.completions.create(
        model="tiny", messages=MESSAGES, stream=True, stream_options={"include_usage": True},
        **params,
    )]  # fmt: skip
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks[:-1]]
    assert "".join(pieces) == expected.text and chunks[-2].choices[0].finish_reason
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens > whole.usage.prompt_tokens


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_completions_streamed_or_not_say_what_the_engine_says(client, engine, params):
    prompts = ["Tea is", "Once upon a time"]
    whole = client.completions.create(model="tiny", prompt=prompts, **params)
    expected = [of_engine(engine, prompt, **params)[0].text for prompt in prompts]
    assert [choice.text for choice in whole.choices] == expected
    streamed = ["", ""]
    for chunk in client.completions.create(model="tiny", prompt=prompts, stream=True, **params):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == expected


def test_greedy_tokens_are_those_of_transformers(client):
    import torch

    from labkit.model.tiny import tiny_model, tiny_tokenizer

    prompt = [5, 9, 2, 5, 9, 2, 7, 7, 1, 30, 31, 32]
    with torch.no_grad():
        made = tiny_model().generate(
            torch.tensor([prompt]), max_new_tokens=20, do_sample=False, pad_token_id=258
        )[0, len(prompt) :]
    answer = client.completions.create(model="tiny", prompt=prompt, **GREEDY)
    assert answer.choices[0].text == tiny_tokenizer().decode(made, skip_special_tokens=True)


def test_several_answers_of_a_seed_are_those_of_the_engine(client, engine):
    whole = client.completions.create(model="tiny", prompt="Tea", n=3, **SAMPLED)
    expected = [output.text for output in of_engine(engine, "Tea", n=3, **SAMPLED)]
    assert [choice.text for choice in whole.choices] == expected and len({*expected}) == 3
    streamed = dict.fromkeys(range(3), "")
    chunks = client.chat.completions.create(
        model="tiny", messages=MESSAGES, n=3, stream=True, **SAMPLED
    )
    for chunk in chunks:
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    expected = of_engine(engine, engine.encode_chat(MESSAGES[0]["content"]), n=3, **SAMPLED)
    assert streamed == {index: output.text for index, output in enumerate(expected)}


def test_without_a_seed_two_answers_differ(client):
    asked = {"model": "tiny", "prompt": "Tea", "temperature": 1, "max_tokens": 40}
    assert len({client.completions.create(**asked).choices[0].text for _ in range(3)}) == 3


def test_a_stop_string_ends_the_text_before_it(client):
    text = client.completions.create(model="tiny", prompt="Tea is", **GREEDY).choices[0].text
    place = next(i for i in range(2, len(text) - 1) if text[i : i + 2] not in text[: i + 1])
    stopped = client.completions.create(
        model="tiny", prompt="Tea is", stop=[text[place : place + 2]], **GREEDY
    )
    assert stopped.choices[0].text == text[:place] and stopped.choices[0].finish_reason == "stop"


def test_logprobs_of_chat(client, engine):
    asked = {"model": "tiny", "messages": MESSAGES, "logprobs": True, "top_logprobs": 3, **GREEDY}
    whole = client.chat.completions.create(**asked).choices[0].logprobs.content
    prompt = engine.encode_chat(MESSAGES[0]["content"])
    (expected,) = of_engine(engine, prompt, logprobs=3, **GREEDY)
    assert [one.logprob for one in whole] == pytest.approx(
        [one.logprob for one in expected.logprobs], abs=1e-3
    )
    assert all(len(one.top_logprobs) == 3 for one in whole)
    assert all(one.top_logprobs[0].bytes == one.bytes for one in whole)  # greedy
    streamed = []
    for chunk in client.chat.completions.create(stream=True, **asked):
        if chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert [one.bytes for one in streamed] == [one.bytes for one in whole]
    plain = client.chat.completions.create(model="tiny", messages=MESSAGES, **GREEDY)
    assert plain.choices[0].logprobs is None


def test_logprobs_of_completions(client):
    asked = {"model": "tiny", "prompt": "Tea is", "logprobs": 2, **GREEDY}
    whole = client.completions.create(**asked)
    found = whole.choices[0].logprobs
    count = whole.usage.completion_tokens
    assert len(found.tokens) == len(found.token_logprobs) == len(found.top_logprobs) == count
    assert found.text_offset[0] == 0 and found.text_offset == sorted(found.text_offset)
    streamed = [c.choices[0].logprobs for c in client.completions.create(stream=True, **asked)]
    assert [t for one in streamed if one for t in one.tokens] == found.tokens


def test_content_in_parts_is_the_text_of_all_parts(client):
    parts = [{"type": "text", "text": "How do you "}, {"type": "text", "text": "make tea?"}]
    texts = [
        client.chat.completions.create(model="tiny", messages=messages, **GREEDY)
        for messages in (MESSAGES, [{"role": "user", "content": parts}])
    ]
    assert texts[0].choices[0].message.content == texts[1].choices[0].message.content


def test_what_goes_beyond_openai_may_be_sent_as_extra(client):
    plain = client.completions.create(model="tiny", prompt="Tea is", **GREEDY)
    more = extra(
        priority=-1, deadline_ms=60_000, ignore_eos=True, top_k=5, min_p=0.01, min_tokens=3,
        repetition_penalty=1.0, cache_salt="s", request_id="mine", stop_token_ids=[3],
    )  # fmt: skip
    answer = client.completions.create(model="tiny", prompt="Tea is", user="me", **GREEDY, **more)
    assert plain.choices[0].text.startswith(answer.choices[0].text)


@pytest.mark.parametrize(
    ("asked", "error", "param"),
    [
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"model": "gpt"}, openai.NotFoundError, "model"),
        ({"max_tokens": 10_000}, openai.BadRequestError, "max_tokens"),
        ({"max_completion_tokens": -1}, openai.BadRequestError, "max_completion_tokens"),
        ({"tools": [{"type": "function"}]}, openai.BadRequestError, "tools"),
        ({"messages": []}, openai.BadRequestError, "messages"),
    ],
)
def test_errors_are_those_of_the_sdk(client, asked, error, param):
    with pytest.raises(error) as caught:
        client.chat.completions.create(**{"model": "tiny", "messages": MESSAGES} | asked)
    assert caught.value.param == param and param in caught.value.message
    assert caught.value.type and caught.value.body["message"]


def test_an_unmet_deadline_is_told_and_not_tried_again(single):
    running = single.stream(max_tokens=50_000, ignore_eos=True).take(1)
    with sdk(single, max_retries=2) as patient, pytest.raises(openai.APIStatusError) as caught:
        patient.completions.create(model="single", prompt="Tea", extra_body={"deadline_ms": 20})
    assert caught.value.status_code == 408 and caught.value.code == "deadline"
    assert single.delete(running.id)["cancelled"] is True


def test_an_error_in_a_stream_is_raised(single):
    with sdk(single) as client:
        stream = client.completions.create(
            model="single", prompt="Tea", max_tokens=50_000, stream=True,
            extra_body={"deadline_ms": 60_000, "ignore_eos": True},
        )  # fmt: skip
        first = next(iter(stream))
        assert client.delete(f"/requests/{first.id}", cast_to=dict)["cancelled"] is True
        with pytest.raises(openai.APIError, match="cancelled"):
            for _ in stream:
                pass


def test_asyncio_many_at_once_each_its_own(shared, engine):
    prompts = [f"Prompt number {number}" for number in range(12)]

    async def ask(client, prompt, stream):
        answer = await client.completions.create(
            model="tiny", prompt=prompt, stream=stream, **GREEDY
        )
        if not stream:
            return answer.choices[0].text
        return "".join([chunk.choices[0].text async for chunk in answer])

    async def all_of_them():
        options = {"base_url": f"{shared.url}/v1", "api_key": "none", "max_retries": 0}
        async with openai.AsyncOpenAI(timeout=PATIENCE_S, **options) as client:
            assert [model.id async for model in client.models.list()] == ["tiny"]
            asked = (ask(client, prompt, i % 2 == 0) for i, prompt in enumerate(prompts))
            return await asyncio.gather(*asked)

    expected = [answer.text for answer in engine.generate(prompts, SamplingParams(**GREEDY))]
    assert asyncio.run(all_of_them()) == expected


def test_leaving_a_stream_ends_the_request(single):
    with sdk(single) as client:
        asked = {"model": "single", "prompt": "Tea", "max_tokens": 50_000, "stream": True}
        with client.completions.create(**asked, **extra(ignore_eos=True)) as stream:
            request_id = next(iter(stream)).id
            assert single.request(request_id)["state"] == "running"
        single.wait_until_idle()
        assert single.request(request_id)["finish_reason"] == "abort"
