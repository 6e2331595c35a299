"""The draw: as frequent as it is probable, and the same for a seed whoever the neighbours are."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_rows import VOCAB, Row, column, some_logits, tokens

from labkit.model.sampling import child_seed, keep_top_k, pick, sample
from labkit.model.sampling_params import SamplingParams

INF = math.inf


@pytest.mark.parametrize(
    ("number", "token"),
    [(0.0, 1), (0.2499, 1), (0.25, 3), (0.9999, 3), (1 - 2.0**-53, 3)],
)
def test_tokens_lie_side_by_side_and_those_of_probability_zero_have_no_width(number, token):
    logits = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).log()
    assert pick(logits, column(number)).tolist() == [token]


@settings(deadline=None)
@given(st.integers(0, 50), st.sampled_from([0.0, 0.5, 1 - 2.0**-53]), st.integers(1, 400))
def test_a_draw_at_either_end_is_a_token_that_is_left(seed, number, vocab):
    logits = keep_top_k(some_logits(1, vocab, seed), column(3))
    assert logits[0, pick(logits, column(number))].isfinite()


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
