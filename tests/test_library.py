"""The library: text in, text out; what is refused, and that nobody pays for another's mistake."""

import gc

import pytest
import torch

from labkit import Engine, SamplingParams, rungs
from labkit.measure.generation import generate
from labkit.model.checkpoint import ModelError
from labkit.model.loading import LoadedModel, load, load_decoder
from labkit.rungs import RUNGS, parse_bytes
from labkit.workbook.fakes import ByteTokenizer

PROMPTS = ["Hi", "한글 🙂", "a" * 40, "tea", "The end"]


@pytest.fixture(scope="module")
def decoder():
    return load_decoder("tiny")


@pytest.fixture(scope="module")
def transformers_model():
    return load("tiny").model


@pytest.fixture
def engine(decoder):
    return Engine(decoder, num_blocks=128)


def engine_of(rung: str, **options) -> Engine:
    """`tiny` on a rung, in little memory unless the options say how much."""
    if rung in ("paged", "continuous", "preemptive") and "kv_memory" not in options:
        options.setdefault("num_blocks", 64)
    return Engine.load("tiny", rung=rung, **options)


def greedy(max_tokens: int = 12, **fields) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, **fields)


def sampled(**fields) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 12, "ignore_eos": True} | fields)


def tokens_of(completion) -> list[list[int]]:
    return [output.token_ids for output in completion.outputs]


def num_used(engine: Engine) -> int:
    return engine.core.scheduler.pool.num_used


# Generate


@pytest.mark.parametrize("rung", RUNGS)
def test_generate_gives_the_tokens_of_transformers_and_their_text(rung, transformers_model):
    engine = engine_of(rung)
    completions = engine.generate(PROMPTS, greedy())
    for prompt, completion in zip(PROMPTS, completions, strict=True):
        token_ids = engine.tokenizer.encode(prompt)
        [output] = completion.outputs
        assert completion.prompt_token_ids == token_ids
        assert output.token_ids == generate(transformers_model, token_ids, 12, use_cache=True)
        assert completion.text == output.text == engine.tokenizer.decode(
            output.token_ids, skip_special_tokens=True
        )
        assert (output.finish_reason, output.error, output.logprobs) == ("length", None, [])
    assert not engine.has_unfinished()


def test_a_prompt_may_be_text_token_ids_or_a_list_of_either(engine):
    ids = engine.tokenizer.encode("Hi")
    [wanted] = engine.generate("Hi", greedy())
    for prompts in (["Hi"], ids, tuple(ids), [ids], [tuple(ids)]):
        [found] = engine.generate(prompts, greedy())
        assert (found.text, found.prompt_token_ids) == (wanted.text, ids)
    both = engine.generate(["Hi", ids], greedy())
    assert [c.text for c in both] == [wanted.text] * 2
    assert engine.generate([], greedy()) == []


def test_each_prompt_may_have_its_own_params(engine):
    params = [greedy(3), greedy(5), greedy(1)]
    completions = engine.generate(PROMPTS[:3], params)
    assert [len(c.outputs[0].token_ids) for c in completions] == [3, 5, 1]
    with pytest.raises(ValueError, match="3 prompts and 2 params"):
        engine.generate(PROMPTS[:3], params[:2])
    assert not engine.has_unfinished()


def test_the_list_of_the_caller_is_not_kept(engine):
    prompt = [72, 105]
    [request] = engine.add(prompt, greedy())
    prompt.append(1000)
    assert request.prompt_token_ids == [72, 105]


# Stream


@pytest.mark.parametrize("rung", RUNGS)
def test_the_pieces_of_a_stream_are_the_text_of_generate(rung):
    engine = engine_of(rung)
    for prompt in PROMPTS:
        [completion] = engine.generate(prompt, greedy(20))
        pieces = list(engine.stream(prompt, greedy(20)))
        assert "".join(piece.text for piece in pieces) == completion.text
        assert [piece.token_id for piece in pieces] == completion.outputs[0].token_ids
        assert [piece.finish_reason for piece in pieces] == [None] * 19 + ["length"]


def test_streams_may_be_read_in_turns(engine):
    wanted = [completion.text for completion in engine.generate(PROMPTS, greedy(9))]
    streams = [engine.stream(prompt, greedy(9)) for prompt in PROMPTS]
    seen = [""] * len(streams)
    for _ in range(9):
        for i, stream in enumerate(streams):
            seen[i] += next(stream).text
    assert seen == wanted
    assert all(next(stream, None) is None for stream in streams)


def test_generate_in_the_middle_of_a_stream(engine):
    [wanted] = engine.generate("Hi", greedy(9))
    stream = engine.stream("Hi", greedy(9))
    seen = next(stream).text
    assert engine.generate("Hi", greedy(20))[0].text.startswith(wanted.text)
    assert seen + "".join(piece.text for piece in stream) == wanted.text


def test_leaving_a_stream_frees_its_blocks(engine):
    for _ in engine.stream("a" * 40, greedy(50)):
        assert num_used(engine) > 0
        break
    gc.collect()
    assert num_used(engine) == 0
    assert not engine.has_unfinished()


def test_a_stream_that_nobody_reads_is_aborted(engine):
    stream = engine.stream("Hi", greedy())
    assert engine.has_unfinished()
    del stream
    gc.collect()
    assert not engine.has_unfinished()


def test_a_stream_that_is_aborted_from_outside_ends(engine):
    stream = engine.stream("Hi", greedy(50))
    next(stream)
    [request_id] = engine.core.unfinished
    assert engine.abort(request_id)
    assert [piece.finish_reason for piece in stream] == ["abort"]


def test_a_request_of_ones_own_goes_on_beside_generate(engine):
    [wanted] = engine.generate("tea", greedy(6))
    [request] = engine.add("tea", greedy(6))
    engine.generate("Hi", greedy(9))
    assert request.output_token_ids == wanted.outputs[0].token_ids


# Seeds, n


@pytest.mark.parametrize("rung", RUNGS[1:])
def test_two_answers_of_one_seed_differ_and_both_end(rung):
    """Case 15."""
    engine = engine_of(rung)
    params = sampled(n=2, seed=7)
    [completion] = engine.generate("Hi", params)
    first, second = tokens_of(completion)
    assert first != second and len(first) == len(second) == 12
    ends = {}
    texts = ["", ""]
    for piece in engine.stream("Hi", params):
        texts[piece.index] += piece.text
        if piece.finish_reason:
            ends[piece.index] = piece.finish_reason
    assert ends == {0: "length", 1: "length"}
    assert texts == [output.text for output in completion.outputs]


def test_the_first_of_n_answers_is_that_of_n_1(engine):
    [one], [three] = (
        tokens_of(engine.generate("Hi", sampled(n=n, seed=7))[0])[:1] for n in (1, 3)
    )
    assert one == three


@pytest.mark.parametrize("rung", RUNGS[1:])
def test_a_seeded_request_gives_the_same_tokens_alone_and_in_a_batch(rung):
    """Case 16."""
    engine = engine_of(rung)
    params = [sampled(seed=i, temperature=0.5 + 0.3 * i, top_p=0.9) for i in range(len(PROMPTS))]
    alone = [tokens_of(engine.generate(p, own)[0]) for p, own in zip(PROMPTS, params, strict=True)]
    together = engine.generate(PROMPTS, params)
    assert [tokens_of(completion) for completion in together] == alone
    assert alone[0] != tokens_of(engine.generate(PROMPTS[0], sampled(seed=99))[0])


def test_a_seeded_request_gives_the_same_tokens_after_a_preemption(decoder):
    params = [sampled(seed=i, max_tokens=40) for i in range(len(PROMPTS))]
    roomy, tight = Engine(decoder, num_blocks=128), Engine(decoder, num_blocks=6)
    wanted = roomy.generate(PROMPTS, params)
    requests = [tight.add(p, own)[0] for p, own in zip(PROMPTS, params, strict=True)]
    while tight.has_unfinished():
        tight.step()
    assert sum(request.num_preemptions for request in requests) > 0
    assert [[r.output_token_ids] for r in requests] == [tokens_of(c) for c in wanted]


def test_requests_without_a_seed_differ(engine):
    texts = {engine.generate("Hi", sampled())[0].text for _ in range(5)}
    assert len(texts) > 1


# How an answer ends


@pytest.fixture
def scripted(decoder):
    """A function from a text to an engine whose every answer is that text, and blanks after."""

    def make(text: str) -> Engine:
        token_ids = list(text.encode())

        def write(batch, cache):
            logits = torch.zeros(len(batch.logits_rows), 259)
            for row, place in enumerate(batch.positions[batch.logits_rows].tolist()):
                logits[row, token_ids[place] if place < len(token_ids) else 32] = 9.0
            return logits

        write.config, write.dtype = decoder.model.config, torch.float32
        write.device = torch.device("cpu")
        write.spare_blocks = 0
        loaded = LoadedModel("scripted", None, write, ByteTokenizer(), frozenset({258}))
        return Engine(loaded, num_blocks=32)

    return make


def test_a_stop_string_across_tokens_never_leaks(scripted):
    """Case 3."""
    engine = scripted("DEFGHIJ and more")
    pieces = list(engine.stream([1], greedy(30, stop=["DEFGHIJ"])))
    assert "".join(piece.text for piece in pieces) == ""
    assert len(pieces) == 7 and pieces[-1].finish_reason == "stop"
    assert not engine.has_unfinished() and num_used(engine) == 0


def test_text_before_a_stop_string_is_not_held_back_longer_than_it_must(scripted):
    engine = scripted("abcabdx")
    pieces = list(engine.stream([1], greedy(30, stop=["abd", "never"])))
    assert [piece.text for piece in pieces] == ["", "", "abc", "", "", ""]
    [completion] = engine.generate([[1]], greedy(30, stop=["abd", "never"]))
    [output] = completion.outputs
    assert (output.text, output.finish_reason) == ("abc", "stop")
    assert bytes(output.token_ids) == b"abcabd"


def test_half_a_stop_string_comes_out_at_the_end(scripted):
    [completion] = scripted("xyab").generate([[1]], greedy(4, stop="abc"))
    assert (completion.text, completion.outputs[0].finish_reason) == ("xyab", "length")


def test_a_stop_string_in_the_last_token_is_a_stop(scripted):
    [completion] = scripted("xyab").generate([[1]], greedy(4, stop="ab"))
    assert (completion.text, completion.outputs[0].finish_reason) == ("xy", "stop")


def test_a_stop_string_ends_one_of_several_only(scripted):
    engine = scripted("abcdef")
    first, second = engine.generate([[1], [1]], [greedy(6, stop="cd"), greedy(6)])
    assert (first.text, second.text) == ("ab", "abcdef")


def test_a_stop_string_before_min_tokens_does_not_count(scripted):
    [completion] = scripted("ab ab ab").generate([[1]], greedy(8, stop="ab", min_tokens=3))
    assert (completion.text, completion.outputs[0].finish_reason) == ("ab ", "stop")


def test_a_character_of_several_tokens_comes_whole(scripted):
    """Cases 1 and 2: nothing of half a character, and at the end what there is, once."""
    pieces = [piece.text for piece in scripted("ď🙂").stream([1], greedy(5))]
    assert pieces[:4] == ["", "ď", "", ""] and "".join(pieces) == "ď\ufffd"
    assert scripted("ď🙂").generate([[1]], greedy(6))[0].text == "ď🙂"


@pytest.mark.parametrize("rung", RUNGS[1:])
def test_a_stop_token_ends_an_answer_and_is_not_in_its_text(rung):
    engine = engine_of(rung)
    [whole] = engine.generate("Hi", greedy())
    token_ids = whole.outputs[0].token_ids
    fifth = token_ids[4]
    end = token_ids.index(fifth) + 1
    [completion] = engine.generate("Hi", greedy(stop_token_ids=[fifth]))
    [output] = completion.outputs
    assert (output.token_ids, output.finish_reason) == (token_ids[:end], "stop")
    assert whole.text.startswith(output.text)
    assert output.text == engine.tokenizer.decode(token_ids[: end - 1])


@pytest.mark.parametrize("rung", RUNGS)
def test_an_end_token_ends_an_answer_unless_it_is_ignored(rung, decoder):
    [whole] = engine_of(rung).generate("Hi", greedy())
    token_ids = whole.outputs[0].token_ids
    engine = engine_of(rung)
    engine.core.eos_token_ids = frozenset({token_ids[3]})
    end = token_ids.index(token_ids[3]) + 1
    [ended] = engine.generate("Hi", SamplingParams(temperature=0.0, max_tokens=12))
    assert (ended.outputs[0].token_ids, ended.outputs[0].finish_reason) == (token_ids[:end], "stop")
    [ignored] = engine.generate("Hi", greedy())
    assert tokens_of(ignored) == [token_ids]


@pytest.mark.parametrize("rung", RUNGS[1:])
@pytest.mark.parametrize("min_tokens", [1, 5, 12])
def test_min_tokens_are_made_and_none_of_them_is_an_end_token(rung, min_tokens):
    engine = engine_of(rung)
    first = engine.generate("Hi", greedy())[0].outputs[0].token_ids[0]
    params = SamplingParams(
        temperature=0.0, max_tokens=12, min_tokens=min_tokens, stop_token_ids=[first]
    )
    token_ids = engine.generate("Hi", params)[0].outputs[0].token_ids
    assert len(token_ids) >= min_tokens
    assert first not in token_ids[:min_tokens]


@pytest.mark.parametrize("rung", RUNGS[1:])
def test_logprobs_are_the_log_softmax_of_the_raw_logits(rung, transformers_model):
    engine = engine_of(rung)
    params = sampled(logprobs=3, temperature=0.7, top_p=0.8, seed=1, repetition_penalty=1.3)
    [output] = engine.generate("Hi there", params)[0].outputs
    prompt = engine.tokenizer.encode("Hi there")
    with torch.inference_mode():
        logits = transformers_model(torch.tensor([prompt + output.token_ids])).logits[0]
    rows = logits[len(prompt) - 1 : -1].log_softmax(dim=-1)
    assert len(output.logprobs) == len(output.token_ids) == 12
    for token_id, found, row in zip(output.token_ids, output.logprobs, rows, strict=True):
        assert found.logprob == pytest.approx(row[token_id].item(), abs=1e-4)
        assert found.rank == int((row > row[token_id]).sum()) + 1
        best = row.topk(3)
        assert [token for token, _ in found.alternatives] == best.indices.tolist()
        assert [p for _, p in found.alternatives] == pytest.approx(best.values.tolist(), abs=1e-4)


# One bad request hurts itself alone


BAD_PROMPTS = [
    ("", "0 tokens"),
    ([], "0 tokens"),
    ([[]], "0 tokens"),
    ([1, 259], r"token 1 .* is 259; .* from 0 to 258"),
    ([1, 2, -1], r"token 2 .* is -1; .* from 0 to 258"),
    ([1, 10**30], "token 1"),
    ([1, 2.5], "token 1 .* is 2.5"),
    ([1.0, 2], "token 0 .* is 1.0"),
    ([1, "2"], "token 1 .* is '2'"),
    ([1, True], "token 1 .* is True"),
    ([1, None], "token 1 .* is None"),
    ("ab\ud800", "character 2 of the prompt is half a surrogate pair"),
]


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize(("prompt", "message"), BAD_PROMPTS)
def test_a_prompt_that_is_none_is_refused_with_its_value(rung, prompt, message, cheap):
    prompt = prompt[0] if prompt == [[]] else prompt
    with pytest.raises(ValueError, match=message):
        cheap[rung].add(prompt, greedy())
    assert not cheap[rung].has_unfinished()


@pytest.fixture(scope="module")
def cheap():
    return {rung: engine_of(rung) for rung in RUNGS}


@pytest.mark.parametrize("prompt", [None, 5, b"abc", {"a": 1}, torch.tensor([1, 2])])
def test_a_prompt_of_another_kind_is_refused(engine, prompt):
    with pytest.raises(ValueError, match="the prompt is"):
        engine.add(prompt)


def test_generate_with_one_bad_prompt_serves_none_and_leaves_nothing_behind(engine):
    with pytest.raises(ValueError, match="token 0"):
        engine.generate(["Hi", "tea", [-5]], greedy())
    assert not engine.has_unfinished() and num_used(engine) == 0
    assert engine.generate("Hi", greedy(3))[0].outputs[0].finish_reason == "length"


def test_a_bad_request_beside_a_good_stream_hurts_itself_alone(engine):
    """Case 10."""
    [wanted] = engine.generate("Hi", greedy())
    stream = engine.stream("Hi", greedy())
    seen = next(stream).text
    for prompt, message in BAD_PROMPTS[3:6]:
        with pytest.raises(ValueError, match=message):
            engine.add(prompt, greedy())
    with pytest.raises(ValueError, match="top_p is -1"):
        engine.add("tea", greedy(top_p=-1))
    bad = engine.add("tea", greedy(logit_bias={5000: 1.0}))[0]  # seen when it is sampled
    assert seen + "".join(piece.text for piece in stream) == wanted.text
    assert bad.finish_reason == "error" and "5000" in bad.error


def test_an_error_is_the_last_piece_of_its_stream(engine):
    pieces = list(engine.stream("tea", greedy(logit_bias={5000: 1.0})))
    assert [piece.finish_reason for piece in pieces] == ["error"]
    assert "5000" in pieces[0].error and pieces[0].token_id is None
    [output] = engine.generate("tea", greedy(logit_bias={5000: 1.0}))[0].outputs
    assert (output.finish_reason, output.text, output.token_ids) == ("error", "", [])
    assert output.error == pieces[0].error


@pytest.mark.parametrize(
    "fields",
    [{"top_p": -1}, {"n": 0}, {"max_tokens": 0}, {"max_tokens": -1}, {"temperature": -0.1},
     {"top_k": -2}, {"min_tokens": 13}, {"stop": [""]}, {"logprobs": 21}, {"seed": "a"}],
    ids=lambda fields: next(iter(fields)),
)  # fmt: skip
def test_a_bad_parameter_is_refused_by_name(fields):
    [(name, value)] = fields.items()
    with pytest.raises(ValueError, match=name):
        sampled(**fields)


@pytest.mark.parametrize(
    "fields", [{"temperature": 1.0}, {"n": 2}, {"logprobs": 1}, {"min_tokens": 2}, {"top_k": 3}]
)
def test_the_first_rung_refuses_what_it_would_ignore(cheap, fields):
    with pytest.raises(ValueError, match="rung 'naive' is greedy"):
        cheap["naive"].add("Hi", SamplingParams(**{"temperature": 0.0} | fields))


def test_a_tiny_temperature_gives_the_greedy_tokens(engine):
    """Case 11."""
    [wanted] = engine.generate("Hi", greedy())
    assert tokens_of(engine.generate("Hi", sampled(temperature=1e-4))[0]) == tokens_of(wanted)


# Names


@pytest.mark.parametrize("rung", RUNGS)
def test_an_id_in_use_is_refused_and_the_first_goes_on(rung):
    engine = engine_of(rung)
    [first] = engine.add("Hi", greedy(3), request_id="same")
    with pytest.raises(ValueError, match="'same' is already in line"):
        engine.add("tea", greedy(3), request_id="same")
    while engine.has_unfinished():
        engine.step()
    assert len(first.output_token_ids) == 3
    engine.add("tea", greedy(3), request_id="same")


def test_a_copy_whose_id_is_in_use_takes_its_siblings_along(engine):
    [mine] = engine.add("Hi", greedy(3), request_id="a/1")
    with pytest.raises(ValueError, match="'a/1' is already in line"):
        engine.add("tea", sampled(n=3), request_id="a")
    assert list(engine.core.unfinished) == ["a/1"]


@pytest.mark.parametrize("rung", RUNGS)
def test_abort_is_idempotent_and_truthful(rung):
    """Case 18: before admission, while running, after the end, and of nobody."""
    engine = engine_of(rung)
    running, waiting = engine.add("Hi", greedy(5)) + engine.add("tea", greedy(5))
    assert engine.abort(waiting.request_id) is True
    assert engine.abort(waiting.request_id) is False
    engine.step()
    assert engine.abort(running.request_id) is True
    assert engine.abort(running.request_id) is False
    assert engine.abort("nobody") is False
    assert not engine.has_unfinished() and engine.step() == []
    [ended] = engine.add("Hi", greedy(2))
    while engine.has_unfinished():
        engine.step()
    assert engine.abort(ended.request_id) is False
    assert [r.finish_reason for r in (running, waiting, ended)] == ["abort", "abort", "length"]


def test_an_abort_gives_all_blocks_back(engine):
    requests = [engine.add("a" * 40, sampled(n=3))[0] for _ in range(4)]
    engine.step()
    assert num_used(engine) > 0
    for request in requests:
        for name in (f"{request.request_id}/2", request.request_id, f"{request.request_id}/1"):
            assert engine.abort(name) is True
        engine.step()
    assert num_used(engine) == 0 and not engine.has_unfinished()


# Lengths and memory


@pytest.mark.parametrize("rung", ["cached", "paged", "continuous"])
def test_a_prompt_fits_when_one_output_token_still_does(rung):
    """Case 7: prompts of max_model_len - 1, max_model_len and max_model_len + 1."""
    engine = engine_of(rung, max_model_len=32)
    [completion] = engine.generate([[7] * 31], greedy(1))
    assert completion.outputs[0].finish_reason == "length"
    for length in (32, 33):
        with pytest.raises(ValueError, match=rf"{length} prompt tokens and max_tokens 1 .* 32"):
            engine.generate([[7] * length], greedy(1))
    with pytest.raises(ValueError, match="30 prompt tokens and max_tokens 3 make 33"):
        engine.generate([[7] * 30], greedy(3))
    assert engine.generate([[7] * 30], greedy(2))[0].outputs[0].finish_reason == "length"


@pytest.mark.parametrize("rung", ["cached", "paged", "continuous"])
def test_without_max_model_len_the_model_sets_the_limit(rung):
    engine = engine_of(rung)
    assert len(engine.generate([[7] * 511], greedy(1))[0].outputs[0].token_ids) == 1
    with pytest.raises(ValueError, match="512 prompt tokens and max_tokens 1 make 513"):
        engine.generate([[7] * 512], greedy(1))


@pytest.mark.parametrize("rung", ["paged", "continuous"])
def test_a_max_model_len_beyond_the_pool_is_refused_with_both_numbers(rung):
    """Case 8."""
    with pytest.raises(ValueError, match="max_model_len is 129, .* 512 .* room for 128"):
        engine_of(rung, max_model_len=129, num_blocks=8)
    engine_of(rung, max_model_len=128, num_blocks=8)


@pytest.mark.parametrize("rung", ["cached", "paged", "continuous"])
def test_a_max_model_len_beyond_the_model_is_refused_with_both_numbers(rung):
    with pytest.raises(ValueError, match="max_model_len is 513, .* positions for 512 tokens"):
        engine_of(rung, max_model_len=513)


@pytest.mark.parametrize("rung", ["paged", "continuous"])
def test_num_blocks_and_kv_memory_together_are_refused(rung):
    with pytest.raises(ValueError, match="num_blocks 8 and kv_memory '1MB': give one"):
        Engine.load("tiny", rung=rung, num_blocks=8, kv_memory="1MB")


def test_kv_memory_becomes_blocks(decoder):
    """tiny has 2 layers of 2 KV heads of 16, keys and values, 4 bytes each: 512 a token."""
    engine = Engine(decoder, kv_memory="1MB", block_size=8)
    assert engine.core.scheduler.pool.num_blocks == 2**20 // (512 * 8)
    for too_little in (0, 4095, "1KB"):
        with pytest.raises(ValueError, match=rf"kv_memory {too_little!r} is less than one block"):
            Engine(decoder, kv_memory=too_little, block_size=8)


@pytest.mark.parametrize(
    ("text", "amount"),
    [(4096, 4096), ("4096", 4096), ("1GB", 2**30), ("512MB", 2**29), ("1.5GiB", 3 * 2**29),
     ("2g", 2**31), ("1 TB", 2**40), ("64kb", 2**16), (" 1MiB ", 2**20), ("100B", 100)],
)  # fmt: skip
def test_amounts_of_memory(text, amount):
    assert parse_bytes(text) == amount


@pytest.mark.parametrize(
    "text",
    ["", "GB", "1 giga", "-1GB", "1GBB", "1IB", "nan", "inf", "infGB", "1e999GB", "1_0GB", "0x10",
     "1,5GB", True, None, -0.5],
)  # fmt: skip
def test_what_is_no_amount_of_memory_is_refused_with_its_value(text):
    with pytest.raises(ValueError, match=f"{text!r} is no amount of memory"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("rung", "option", "having"),
    [
        ("naive", {"max_num_seqs": 2}, "static, cached, paged, continuous, preemptive"),
        ("static", {"max_model_len": 64}, "cached, paged, continuous, preemptive"),
        ("static", {"kv_memory": "1MB"}, "paged, continuous, preemptive"),
        ("cached", {"num_blocks": 8}, "paged, continuous, preemptive"),
        ("cached", {"block_size": 8}, "paged, continuous, preemptive"),
        ("naive", {"block_size": 16}, "paged, continuous, preemptive"),
        ("paged", {"prefix_caching": True}, "continuous, preemptive"),
        ("paged", {"max_num_batched_tokens": 64}, "continuous, preemptive"),
        ("paged", {"cuda_graphs": True}, "continuous, preemptive"),
    ],
)
def test_an_option_that_a_rung_does_not_have_is_refused(rung, option, having):
    [name] = option
    with pytest.raises(ValueError, match=f"'{rung}' has no {name}; it belongs to {having}$"):
        engine_of(rung, **option)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "8"])
@pytest.mark.parametrize("name", sorted(rungs.COUNTS))
def test_a_count_that_is_none_is_refused_with_its_value(decoder, name, value):
    with pytest.raises(ValueError, match=f"{name} is {value!r}"):
        Engine(decoder, **{name: value})


def test_the_urgent_one_is_answered_first_on_the_rung_that_preempts():
    engine = engine_of("preemptive", max_num_seqs=1)
    engine.add([1, 2, 3], greedy(20), request_id="batch", priority=5)
    engine.step()
    engine.add([1, 2, 3], greedy(3), request_id="chat", priority=-1)
    ended = []
    while engine.has_unfinished():
        ended += [event.request_id for event in engine.step() if event.finish_reason]
    assert ended == ["chat", "batch"]


def test_a_priority_or_a_deadline_that_would_be_ignored_is_refused():
    for rung in RUNGS[:-1]:
        with pytest.raises(ValueError, match="priority is 3, and rung .* in order of arrival"):
            engine_of(rung).add([1], greedy(), priority=3)
    for rung in RUNGS[:-2]:
        with pytest.raises(ValueError, match="deadline is 9.*and rung .* has none"):
            engine_of(rung).add([1], greedy(), deadline=9.0)
    engine = engine_of("preemptive")
    for fields, message in [
        ({"priority": 1.5}, "priority is 1.5"),
        ({"priority": True}, "priority is True"),
        ({"tenant": 3}, "tenant is 3"),
        ({"deadline": "soon"}, "deadline is 'soon'"),
        ({"deadline": float("nan")}, "deadline is nan"),
    ]:
        with pytest.raises(ValueError, match=message):
            engine.add([1], greedy(), **fields)
    assert not engine.has_unfinished()


def test_a_request_past_its_deadline_ends_with_that_reason():
    now = iter(range(1000))
    engine = engine_of("continuous", clock=lambda: next(now))
    [request] = engine.add([1, 2, 3], greedy(100), deadline=20)
    while engine.has_unfinished():
        engine.step()
    assert request.finish_reason == "deadline" and 0 < len(request.output_token_ids) < 20
    assert num_used(engine) == 0


def test_an_unknown_option_rung_or_dtype_is_refused():
    with pytest.raises(TypeError, match="num_block"):
        engine_of("continuous", num_block=3)
    with pytest.raises(ValueError, match="rung 'fast' is not known; accepted are naive, static"):
        engine_of("fast")
    for rung in RUNGS:
        with pytest.raises(ModelError, match="'int3' is not known; accepted are float32"):
            engine_of(rung, dtype="int3")
    for rung in ("naive", "static"):
        with pytest.raises(ModelError, match="'int8' needs labkit's decoder"):
            engine_of(rung, dtype="int8")


@pytest.mark.parametrize("name", ["prefix_caching", "cuda_graphs", "seed"])
def test_an_option_of_another_type_is_refused_with_its_value(decoder, name):
    with pytest.raises(ValueError, match=f"{name} is 'no'"):
        Engine(decoder, **{name: "no"})


@pytest.mark.parametrize("options", [{"num_blocks": 10**12}, {"kv_memory": "900TB"}])
def test_a_cache_beyond_the_memory_of_the_machine_is_refused_with_both_numbers(decoder, options):
    with pytest.raises(ValueError, match=r"blocks of 16 tokens are [\d,]+ bytes, .*'cpu' has"):
        Engine(decoder, **options)


@pytest.mark.parametrize("rung", ["naive", "continuous"])
@pytest.mark.parametrize("device", ["gpu", "cuda:77", "meta-cpu"])
def test_a_device_that_is_not_there_is_refused_by_name(rung, device):
    with pytest.raises(ModelError, match=f"device '{device}' can't be used"):
        engine_of(rung, device=device)


def test_cuda_graphs_on_a_cpu_are_refused():
    with pytest.raises(ValueError, match="cuda_graphs is for a GPU, and the model is on 'cpu'"):
        engine_of("continuous", cuda_graphs=True)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_coarser_numbers_give_answers_of_the_length_asked_for(dtype):
    for rung in ("cached", "paged", "continuous"):
        [completion] = engine_of(rung, dtype=dtype).generate("Hi", greedy(6))
        assert len(completion.outputs[0].token_ids) == 6


# 8-bit integers


def answers_alone_and_together(engine: Engine, prompts: list, params: list):
    alone = [tokens_of(engine.generate(p, own)[0]) for p, own in zip(prompts, params, strict=True)]
    return alone, [tokens_of(completion) for completion in engine.generate(prompts, params)]


def test_in_int8_a_neighbour_never_changes_the_tokens_of_a_request():
    engine = engine_of("continuous", dtype="int8", prefix_caching=False)
    prompts = [*PROMPTS, "long " * 60, [3], "x"]
    params = [greedy(20 + i) for i in range(8)]
    alone, together = answers_alone_and_together(engine, prompts, params)
    assert alone == together
