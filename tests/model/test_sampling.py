"""A token for each row, as vLLM defines it; a row that can't have one has a reason."""

import math
from dataclasses import replace

import pytest
import torch
from sampling_rows import VOCAB, Row, some_logits, tokens
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from labkit.model import sampling
from labkit.model.sampling import Sampled, sample
from labkit.model.sampling_params import GREEDY, SamplingParams

INF = math.inf


def one(logits, **parameters):
    """The token that a single request gets for a single row of logits."""
    return sample(torch.tensor([logits]), [Row(SamplingParams(**parameters))])[0]


# Greedy


def test_greedy_rows_take_the_largest_logit_and_the_first_of_equals():
    logits = torch.tensor([[0.0, 2.0, 2.0], [5.0, 1.0, 5.0]])
    assert sample(logits, [Row(), Row()]) == [Sampled(1), Sampled(0)]


def test_greedy_rows_alone_are_one_search_over_the_batch(monkeypatch):
    for step in ("draw", "logprobs_of"):
        monkeypatch.setattr(sampling, step, None)
    logits = some_logits(8)
    assert tokens(logits, [Row()] * 8) == logits.argmax(dim=-1).tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_any_float_type_is_sampled_and_left_as_it_was(dtype):
    logits = some_logits(2).to(dtype)
    before = logits.clone()
    params = SamplingParams(
        logit_bias={1: 5.0}, repetition_penalty=1.3, top_p=0.9, top_k=5, min_p=0.1, logprobs=2
    )
    sample(logits, [Row(params), Row()])
    assert torch.equal(logits, before)


def test_no_rows_are_no_tokens():
    assert sample(torch.zeros(0, VOCAB), []) == []


# Steps that greedy rows take too


def test_penalties_apply_to_greedy_rows_too():
    asked = Row(SamplingParams(temperature=0.0, presence_penalty=1.0), [0], [1])
    assert tokens(torch.tensor([[1.0, 1.5, 0.0]] * 2), [asked, Row()]) == [0, 1]


def test_bias_forces_and_bans():
    assert one([0.0, 9.0, 1.0], temperature=0.0, logit_bias={1: -100}).token_id == 2
    assert one([0.0, 9.0, 1.0], logit_bias={0: 100}).token_id == 0


def test_no_token_that_ends_the_request_before_min_tokens():
    params = SamplingParams(temperature=0.0, min_tokens=2)
    for length, token in ((0, 1), (1, 1), (2, 0)):
        row = Row(params, output_token_ids=[1] * length, stop_token_ids=frozenset({0, 5000}))
        assert tokens(torch.tensor([[9.0, 1.0, 0.0]]), [row]) == [token]


def test_a_bias_does_not_lift_the_ban_of_min_tokens():
    row = Row(SamplingParams(min_tokens=1, logit_bias={0: 100}), stop_token_ids=frozenset({0}))
    assert tokens(torch.tensor([[0.0, 0.0]]), [row]) == [1]


# The order of the filters


def test_the_filters_follow_each_other_in_vllms_order():
    """Temperature, min_p, top_k, top_p: top_p counts what is left of the others."""
    logits = some_logits(1)
    params = SamplingParams(temperature=1.7, min_p=0.02, top_k=20, top_p=0.8)
    steps = [TemperatureLogitsWarper(1.7), MinPLogitsWarper(0.02), TopKLogitsWarper(20)]
    kept = LogitsProcessorList([*steps, TopPLogitsWarper(0.8)])(None, logits)[0].isfinite()
    drawn = set(tokens(logits.expand(2000, -1), [Row(params, seed=s) for s in range(2000)]))
    assert drawn == set(kept.nonzero()[:, 0].tolist())


# Logprobs


def test_logprobs_are_the_log_softmax_of_the_raw_logits():
    logits = some_logits(3)
    params = SamplingParams(
        temperature=0.5, top_k=40, repetition_penalty=1.5, logit_bias={4: 5.0}, logprobs=4
    )
    results = sample(logits, [Row(params, seed=3), Row(), Row(replace(GREEDY, logprobs=0))])
    expected = torch.log_softmax(logits, dim=-1)
    for row, count in ((0, 4), (2, 0)):
        found = results[row].logprobs
        chosen = expected[row, results[row].token_id]
        assert found.logprob == pytest.approx(chosen.item(), abs=1e-6)
        assert found.rank == 1 + (expected[row] > chosen).sum().item()
        best = expected[row].topk(count)
        assert [token for token, _ in found.alternatives] == best.indices.tolist()
        values = [logprob for _, logprob in found.alternatives]
        assert values == pytest.approx(best.values.tolist(), abs=1e-6)
    assert results[1].logprobs is None


def test_more_alternatives_than_tokens_are_all_tokens():
    assert len(one([1.0, 0.0, 2.0], logprobs=20).logprobs.alternatives) == 3


# One bad row must not hurt another


@pytest.mark.parametrize("params", [GREEDY, SamplingParams(top_p=0.9, top_k=5, logprobs=2)])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [([math.nan, 1, 2], "nan"), ([INF, 1, 2], "inf"), ([-INF] * 3, "no token is left")],
)
def test_a_broken_row_has_an_error_and_its_neighbours_a_token(bad, reason, params):
    broken, good = sample(torch.tensor([bad, [0.0, 1.0, 9.0]]), [Row(params), Row(params)])
    assert (broken.token_id, broken.logprobs) == (None, None)
    assert reason in broken.error
    assert good == sample(torch.tensor([[0.0, 1.0, 9.0]]), [Row(params)])[0]
    assert good.error is None and good.token_id == 2


def test_a_bias_beyond_the_vocabulary_is_an_error_of_that_row():
    rows = [Row(SamplingParams(logit_bias={VOCAB: 1.0})), Row()]
    bad, good = sample(some_logits(2), rows)
    assert bad.token_id is None
    assert f"token {VOCAB}" in bad.error and str(VOCAB - 1) in bad.error
    assert good.error is None


def test_min_tokens_with_nothing_but_stop_tokens_is_an_error():
    row = Row(SamplingParams(min_tokens=1), stop_token_ids=frozenset(range(VOCAB)))
    assert "no token is left" in sample(some_logits(1), [row])[0].error


def test_rows_and_requests_must_be_as_many():
    with pytest.raises(ValueError):
        sample(some_logits(2), [Row()])
