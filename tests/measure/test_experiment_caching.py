"""What notebook 03 runs, on `tiny`: tokens and steps are counted, no time is judged."""

import pytest

from labkit.engine.cached import CachedEngine
from labkit.engine.naive import NaiveEngine
from labkit.engine.request import Request
from labkit.engine.runner import span_of
from labkit.kernels import reference
from labkit.measure import roofline
from labkit.measure.experiments import caching
from labkit.measure.generation import generate
from labkit.measure.work import token_forwards
from labkit.model import load, load_decoder
from labkit.model.loading import load_decoder as load_with

PROMPT = [5, 80, 3, 99, 41, 7]


@pytest.fixture(scope="module")
def tiny():
    return load_decoder("tiny").model


@pytest.fixture(scope="module")
def expected():
    return generate(load("tiny").model, PROMPT, 5, use_cache=True)


def two():
    return [Request(name, PROMPT, 5, ignore_eos=True) for name in "ab"]


@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_decoding_says_what_transformers_says_however_the_prompt_is_cut(tiny, expected, chunk):
    tokens, fed = caching.decode(tiny, PROMPT, 5, span_of, chunk)
    assert tokens == expected
    sizes = [n for _, n, _ in fed]
    assert sum(sizes) == token_forwards(6, 5, True)
    assert [start for start, _, _ in fed] == [sum(sizes[:i]) for i in range(len(fed))]


def test_a_given_attention_runs_in_every_layer(expected):
    model, calls = load_with("tiny", attention="torch").model, []

    def attend(q, kv, start):
        calls.append(start)
        return reference.attend(q, kv, start)

    model.attention = caching.attention_by(attend)
    assert caching.decode(model, PROMPT, 5, span_of)[0] == expected
    assert calls == [start for start in (0, 6, 7, 8, 9) for _ in range(2)]


def test_keys_and_values_of_a_prefix_do_not_depend_on_what_follows(tiny):
    import torch

    short, long = (caching.keys_values(tiny, ids) for ids in (PROMPT[:2], PROMPT))
    assert list(long.shape) == [2, 2, 2, 6, 16]
    torch.testing.assert_close(short, long[..., :2, :])


def test_an_engine_that_forgets_says_the_same_and_computes_everything_again(tiny):
    forgetful = caching.forgetful(CachedEngine)(tiny, (), 1, 32)
    keeps = CachedEngine(tiny, (), 1, 32)
    rows = [caching.serve("", engine, two()) for engine in (forgetful, keeps)]
    assert rows[0].outputs == rows[1].outputs
    assert [row.tokens_computed for row in rows] == [
        2 * token_forwards(6, 5, use_cache) for use_cache in (False, True)
    ]
    assert [row.num_steps for row in rows] == [10, 10]
    assert all(0 < row.model_seconds <= row.seconds for row in rows)


def test_the_naive_rung_is_counted_as_well(expected):
    row = caching.serve("", NaiveEngine(load("tiny").model, ()), two())
    assert row.tokens_computed == 2 * token_forwards(6, 5, False)
    assert row.outputs == (tuple(expected),) * 2


def test_a_watched_engine_gets_its_decoder_back_even_after_a_failure(tiny):
    engine = CachedEngine(tiny, (), 1, 32)
    with pytest.raises(RuntimeError), caching.watched(engine):
        raise RuntimeError
    assert engine.runner.decoder is tiny


@pytest.mark.parametrize(("num_new", "size"), [(1, 3), (4, 2), (8, 1)])
def test_a_timed_step_computes_as_many_tokens_as_it_is_told(tiny, num_new, size):
    seen = caching.Forwards()
    seconds = caching.step_seconds(caching.Watched(tiny, seen), 8, num_new, size, repeats=1)
    assert seconds > 0
    assert (seen.passes, seen.tokens) == (2, 2 * num_new * size)


def test_a_batch_reads_the_weights_once_and_every_sequence_s_keys_and_values():
    config = caching.PUBLIC["Llama 3 8B"]
    one, four = (
        caching.decode_cost(roofline.forward_cost, config, 1024, size, 2) for size in (1, 4)
    )
    assert one == roofline.forward_cost(config, 1, 1023, 2)
    assert four.num_flops == 4 * one.num_flops
    assert four.num_bytes - one.num_bytes == 3 * 1024 * 131_072


def test_prefill_asks_for_one_row_of_logits():
    config = caching.PUBLIC["SmolLM2-135M"]
    one, three = (caching.prefill_cost(roofline.forward_cost, config, n) for n in (1, 3))
    assert one == roofline.forward_cost(config, 1)
    whole = roofline.forward_cost(config, 3)
    assert whole.num_flops - three.num_flops == 2 * 2 * 576 * 49152
    assert whole.num_bytes == three.num_bytes


def test_a_split_hides_the_shorter_part_behind_the_longer_one():
    even, long = caching.Split("", 1.0, 1.0, ""), caching.Split("", 1.0, 9.0, "")
    assert (even.gain, even.busy, even.busy_split) == (2.0, 0.5, 1.0)
    assert (long.gain, long.busy, long.busy_split) == (10 / 9, 0.9, 1.0)
    beside = caching.Split("", 9.0, 1.0, "")
    assert (beside.gain, beside.busy_split) == (10 / 9, 1 / 9)
