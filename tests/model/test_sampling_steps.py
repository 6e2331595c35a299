"""Each step on the way from logits to a token, with transformers as the outside judge."""

import pytest
import torch
from sampling_rows import VOCAB, Row, column, some_logits
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from labkit.model import sampling
from labkit.model.penalties import add_logit_bias, adjust, apply_penalties
from labkit.model.sampling_params import SamplingParams


def request(prompt_token_ids=(), output_token_ids=(), **parameters):
    return Row(SamplingParams(**parameters), list(prompt_token_ids), list(output_token_ids))


# Filters


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_temperature_gives_the_distribution_of_transformers(temperature):
    logits = some_logits(4)
    ours = sampling.apply_temperature(logits, column(*[temperature] * 4))
    theirs = TemperatureLogitsWarper(temperature)(None, logits)
    torch.testing.assert_close(ours.softmax(dim=-1), theirs.softmax(dim=-1))


@pytest.mark.parametrize("top_k", [1, 7, VOCAB, VOCAB + 1])
def test_top_k_keeps_what_transformers_keeps(top_k):
    logits = some_logits(4)
    ours = sampling.keep_top_k(logits, column(*[top_k] * 4))
    assert torch.equal(ours, TopKLogitsWarper(top_k)(None, logits))


@pytest.mark.parametrize("top_p", [1e-9, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("scale", [0.01, 1.0, 5.0])
def test_top_p_keeps_what_transformers_keeps(top_p, scale):
    """A scale of 0.01 makes a flat distribution: the first 256 candidates do not suffice."""
    logits = some_logits(4) * scale
    ours = sampling.keep_top_p(logits, column(*[top_p] * 4))
    assert torch.equal(ours, TopPLogitsWarper(top_p)(None, logits.double()).float())


@pytest.mark.parametrize("min_p", [1e-6, 0.05, 0.5, 1.0])
def test_min_p_keeps_what_transformers_keeps(min_p):
    logits = some_logits(4)
    ours = sampling.keep_min_p(logits, column(*[min_p] * 4))
    assert torch.equal(ours, MinPLogitsWarper(min_p)(None, logits))


def test_each_row_has_its_own_limit():
    logits = some_logits(3)
    kept = sampling.keep_top_k(logits, column(1, 5, 9)).isfinite().sum(dim=-1)
    assert kept.tolist() == [1, 5, 9]
    kept = sampling.keep_top_p(logits, column(0.1, 0.5, 0.9))
    for row, top_p in enumerate((0.1, 0.5, 0.9)):
        alone = sampling.keep_top_p(logits[row : row + 1], column(top_p))
        assert torch.equal(kept[row], alone[0])


def test_top_p_keeps_the_token_that_crosses_the_limit():
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    assert sampling.keep_top_p(logits, column(0.6)).isfinite().tolist() == [
        [True, True, False, False]
    ]


# Penalties and bias


def test_repetition_penalty_is_that_of_transformers_over_prompt_and_output():
    logits = some_logits(2)
    rows = [request([1, 2, 2], [7], repetition_penalty=penalty) for penalty in (1.5, 0.7)]
    ours = apply_penalties(logits, rows)
    for row, penalty in enumerate((1.5, 0.7)):
        judge = RepetitionPenaltyLogitsProcessor(penalty)
        theirs = judge(torch.tensor([[1, 2, 2, 7]]), logits[row : row + 1])
        torch.testing.assert_close(ours[row : row + 1], theirs)


def test_frequency_counts_each_and_presence_once_and_both_the_output_only():
    row = request([0, 0], [1, 1, 2], frequency_penalty=0.5, presence_penalty=1.5)
    assert apply_penalties(torch.zeros(1, 4), [row]).tolist() == [[0.0, -2.5, -2.0, 0.0]]


def test_the_three_penalties_follow_vllms_formula():
    row = request(
        [0, 1], [1, 1, 2], repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=0.25
    )
    lowered = apply_penalties(torch.tensor([[4.0, 4.0, -4.0, 4.0]]), [row])
    assert lowered.tolist() == [[2.0, 2.0 - 1.25, -8.0 - 0.75, 4.0]]


def test_bias_is_added_to_the_logits():
    row = request(logit_bias={0: 2.5, 2: -100})
    assert add_logit_bias(torch.ones(1, 3), [row]).tolist() == [[3.5, 1.0, -99.0]]


def test_bias_comes_before_the_penalties():
    row = request([0], logit_bias={0: 3.0}, repetition_penalty=2.0)
    assert adjust(torch.tensor([[1.0, 1.0]]), [row]).tolist() == [[2.0, 1.0]]


def test_rows_that_ask_for_nothing_are_not_copied():
    logits = some_logits(2)
    assert adjust(logits, [request(), request()]) is logits
    changed = adjust(logits, [request(logit_bias={0: 1.0}), request()])
    assert torch.equal(changed[1], logits[1]) and changed[0, 0] == logits[0, 0] + 1


def test_rows_that_fall_short_of_top_p_do_not_change_the_others():
    """One row is flat, its nucleus larger than the candidates that are looked at first."""
    logits = torch.cat([some_logits(1), torch.zeros(1, VOCAB), some_logits(1)])
    kept = sampling.keep_top_p(logits, column(0.9, 0.9, 0.5))
    assert torch.equal(kept[:1], sampling.keep_top_p(logits[:1], column(0.9)))
    assert torch.equal(kept[2:], sampling.keep_top_p(logits[2:], column(0.5)))
    assert kept[1].isfinite().all()  # all are equal: none is left out
