"""A token for each row, as vLLM and transformers define it, whoever the neighbours are."""

import math
from dataclasses import dataclass, field, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from labkit.model import sampling
from labkit.model.sampling import Sampled, child_seed, sample
from labkit.model.sampling_params import GREEDY, SamplingParams

VOCAB = 1000
INF = math.inf


@dataclass
class Row:
    """As much of a request as sampling looks at."""

    sampling: SamplingParams = GREEDY
    prompt_token_ids: list[int] = field(default_factory=lambda: [1, 2, 3])
    output_token_ids: list[int] = field(default_factory=list)
    seed: int = 0
    stop_token_ids: frozenset[int] = frozenset()


def some_logits(rows=1, vocab=VOCAB, seed=0):
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def one(logits, **parameters):
    """The token that a single request gets for a single row of logits."""
    return sample(torch.tensor([logits]), [Row(SamplingParams(**parameters))])[0]


def tokens(logits, requests):
    return [sampled.token_id for sampled in sample(logits, requests)]


def column(*values):
    return torch.tensor(values, dtype=torch.float64)[:, None]


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


# The draw


def test_the_filters_follow_each_other_in_vllms_order():
    """Temperature, min_p, top_k, top_p: top_p counts what is left of the others."""
    logits = some_logits(1)
    params = SamplingParams(temperature=1.7, min_p=0.02, top_k=20, top_p=0.8)
    steps = [TemperatureLogitsWarper(1.7), MinPLogitsWarper(0.02), TopKLogitsWarper(20)]
    kept = LogitsProcessorList([*steps, TopPLogitsWarper(0.8)])(None, logits)[0].isfinite()
    drawn = set(tokens(logits.expand(2000, -1), [Row(params, seed=s) for s in range(2000)]))
    assert drawn == set(kept.nonzero()[:, 0].tolist())


@pytest.mark.parametrize(
    ("number", "token"),
    [(0.0, 1), (0.2499, 1), (0.25, 3), (0.9999, 3), (1 - 2.0**-53, 3)],
)
def test_tokens_lie_side_by_side_and_those_of_probability_zero_have_no_width(number, token):
    logits = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).log()
    assert sampling.pick(logits, column(number)).tolist() == [token]


@settings(deadline=None)
@given(st.integers(0, 50), st.sampled_from([0.0, 0.5, 1 - 2.0**-53]), st.integers(1, 400))
def test_a_draw_at_either_end_is_a_token_that_is_left(seed, number, vocab):
    logits = sampling.keep_top_k(some_logits(1, vocab, seed), column(3))
    assert logits[0, sampling.pick(logits, column(number))].isfinite()


def test_drawn_tokens_are_as_frequent_as_they_are_probable():
    """20,000 draws over 10 tokens: chi-square has mean 9 and deviation 4.2."""
    logits = some_logits(1, 10) / 3
    draws = 20_000
    params = SamplingParams(temperature=1.3)
    rows = [Row(params, output_token_ids=[0] * (i % 20), seed=i // 20) for i in range(draws)]
    counts = torch.tensor(tokens(logits.expand(draws, -1), rows)).bincount(minlength=10)
    expected = (logits[0] / 1.3).softmax(dim=-1) * draws
    assert ((counts - expected) ** 2 / expected).sum() < 9 + 3 * 4.2


NEIGHBOURS = [
    Row(),
    Row(SamplingParams(top_p=0.3, logprobs=3), seed=5),
    Row(SamplingParams(temperature=1e-4, top_k=1), seed=6),
    Row(SamplingParams(min_p=0.2, repetition_penalty=1.4), output_token_ids=[9], seed=7),
    Row(SamplingParams(logit_bias={3: 50.0}, min_tokens=4, top_k=300, top_p=0.999), seed=8),
    Row(SamplingParams(top_k=900, frequency_penalty=1.0), output_token_ids=[4, 4], seed=9),
]


def test_a_row_is_the_same_alone_and_among_any_neighbours():
    logits = some_logits(len(NEIGHBOURS))
    together = sample(logits, NEIGHBOURS)
    alone = [sample(logits[i : i + 1], [row])[0] for i, row in enumerate(NEIGHBOURS)]
    assert [s.token_id for s in together] == [s.token_id for s in alone]
    backwards = sample(logits.flip(0), NEIGHBOURS[::-1])
    assert backwards[::-1] == together


def generate(row, steps, others=()):
    """Tokens of `row` over a model that looks at the last token only, beside `others`."""
    row = replace(row, output_token_ids=list(row.output_token_ids))
    table = some_logits(VOCAB, VOCAB, seed=11)
    for _ in range(steps):
        last = (row.prompt_token_ids + row.output_token_ids)[-1]
        batch = torch.cat([some_logits(len(others), seed=12), table[last : last + 1]])
        row.output_token_ids.append(tokens(batch, [*others, row])[-1])
    return row.output_token_ids


def test_a_seeded_request_is_the_same_alone_batched_and_after_a_preemption():
    row = Row(SamplingParams(top_p=0.95, seed=42), seed=42)
    alone = generate(row, 30)
    assert generate(row, 30, NEIGHBOURS) == alone
    halfway = replace(row, output_token_ids=generate(row, 11, NEIGHBOURS[:2]))
    assert generate(halfway, 19) == alone


def test_two_answers_of_one_seed_differ_and_repeat():
    row = Row(SamplingParams(n=2, seed=42), seed=42)
    answers = [generate(replace(row, seed=child_seed(42, index)), 10) for index in range(2)]
    assert answers[0] != answers[1]
    assert answers[0] == generate(row, 10)
    assert answers == [generate(replace(row, seed=child_seed(42, i)), 10) for i in range(2)]


@pytest.mark.parametrize("temperature", [1e-4, 1e-30, 1e-300, 5e-324])
def test_a_tiny_temperature_is_greedy_and_finite(temperature):
    logits = some_logits(4)
    logits[:, 5:900] = -INF
    params = SamplingParams(temperature=temperature, top_p=0.9, min_p=0.01, top_k=50)
    assert tokens(logits, [Row(params, seed=s) for s in range(4)]) == tokens(logits, [Row()] * 4)


def test_a_high_temperature_never_draws_what_is_forbidden():
    logits = torch.full((500, 50), -INF)
    logits[:, [3, 7]] = 1.0
    params = SamplingParams(temperature=100)
    assert set(tokens(logits, [Row(params, seed=s) for s in range(500)])) == {3, 7}


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
