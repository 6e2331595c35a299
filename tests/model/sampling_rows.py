"""Rows of logits and the requests that they are of, for the tests of sampling."""

from dataclasses import dataclass, field

import torch

from labkit.model.sampling import sample
from labkit.model.sampling_params import GREEDY, SamplingParams

VOCAB = 1000


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


def column(*values):
    """A parameter of each row, as the filters take it."""
    return torch.tensor(values, dtype=torch.float64)[:, None]


def tokens(logits, requests):
    return [sampled.token_id for sampled in sample(logits, requests)]
