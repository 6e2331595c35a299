"""What changes logits before a token is chosen: bias, minimum length, penalties.

These steps can change which token is the most likely one, so greedy requests take them too.
"""

from collections.abc import Callable, Sequence
from math import inf

import torch
from torch import Tensor


def rows_where(requests: Sequence, asks: Callable) -> list[int]:
    return [row for row, request in enumerate(requests) if asks(request)]


def adjust(logits: Tensor, requests: Sequence) -> Tensor:
    """`logits` after bias, minimum length and penalties; the same tensor if nobody asks."""
    changed = logits
    for asks, step in ADJUSTMENTS:
        rows = rows_where(requests, asks)
        if rows:
            changed = logits.clone() if changed is logits else changed
            changed[rows] = step(changed[rows], [requests[row] for row in rows])
    return changed


def add_logit_bias(logits: Tensor, requests: Sequence) -> Tensor:
    vocab = logits.shape[-1]
    for row, request in zip(logits, requests, strict=True):
        bias = {token: add for token, add in request.sampling.logit_bias.items() if token < vocab}
        row[list(bias)] += row.new_tensor(list(bias.values()))
    return logits


def forbid_stopping(logits: Tensor, requests: Sequence) -> Tensor:
    """No token that would end the request, while it is shorter than `min_tokens`."""
    for row, request in zip(logits, requests, strict=True):
        row[[token_id for token_id in request.stop_token_ids if token_id < len(row)]] = -inf
    return logits


def apply_penalties(logits: Tensor, requests: Sequence) -> Tensor:
    """Lowers tokens seen before: repetition by a factor, the other two by subtraction.

    Repetition counts prompt and output: a positive logit is divided, a negative one multiplied,
    so that a penalty above 1 always lowers it. The others count the output only: frequency once
    for each occurrence, presence once for all.
    """
    penalties = [
        (p.repetition_penalty, p.frequency_penalty, p.presence_penalty)
        for p in (request.sampling for request in requests)
    ]
    repetition, frequency, presence = logits.new_tensor(penalties).T[:, :, None]
    in_output = token_counts([request.output_token_ids for request in requests], logits)
    in_prompt = token_counts([request.prompt_token_ids for request in requests], logits)
    lowered = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(in_prompt + in_output > 0, lowered, logits)
    return logits - frequency * in_output - presence * (in_output > 0)


def token_counts(token_ids: list[list[int]], logits: Tensor) -> Tensor:
    """How often each token of the vocabulary is in each list, `[R, vocab]` like `logits`."""
    counts = torch.zeros(logits.shape, dtype=logits.dtype)
    for row, ids in zip(counts, token_ids, strict=True):
        row += torch.bincount(torch.tensor(ids, dtype=torch.int64), minlength=len(row))[: len(row)]
    return counts.to(logits.device)


def is_too_short(request) -> bool:
    return len(request.output_token_ids) < request.sampling.min_tokens


def has_penalty(request) -> bool:
    p = request.sampling
    return (p.repetition_penalty, p.frequency_penalty, p.presence_penalty) != (1, 0, 0)


ADJUSTMENTS = (
    (lambda request: request.sampling.logit_bias, add_logit_bias),
    (is_too_short, forbid_stopping),
    (has_penalty, apply_penalties),
)
