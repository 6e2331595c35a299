"""From logits to one token for each request: penalties, filters, and a draw that can be repeated.

Each step works on the rows that ask for it: a batch of greedy requests costs one search for the
largest logit. The order of the steps is vLLM's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

import torch
from torch import Tensor

from labkit.model.penalties import adjust, rows_where
from labkit.model.sampling_params import child_seed as child_seed
from labkit.model.sampling_params import uniform

NUM_CANDIDATES = 256  # most likely tokens, among which `keep_top_p` looks first


@dataclass(frozen=True)
class Logprobs:
    """Natural logarithms of the probabilities at one position, as the model gave them.

    That is the log-softmax of the raw logits, before bias, penalties, temperature and filters,
    as in vLLM V1. `rank` is 1 for the most likely token. `alternatives` are (token id, logprob),
    best first; the chosen token is among them if it is that likely.
    """

    logprob: float
    rank: int
    alternatives: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Sampled:
    """The next token of one request; or none, and in `error` the reason."""

    token_id: int | None
    logprobs: Logprobs | None = None
    error: str | None = None


@torch.inference_mode()
def sample(logits: Tensor, requests: Sequence) -> list[Sampled]:
    """The next token of each request; row `i` of `logits`, `[R, vocab]`, is of `requests[i]`.

    A request has `sampling` (SamplingParams), `prompt_token_ids`, `output_token_ids`, `seed`
    (always an int) and `stop_token_ids` (a frozenset: the tokens that would end it). `logits`
    may be of any float dtype and on any device; they are worked on in float32 and not changed.

    A row's result depends on that row alone. A row that can't be sampled (a logit NaN or
    +inf, no token left, a bias beyond the vocabulary) gets an `error`, the others a token.
    """
    raw = logits.float()
    logits = adjust(raw, requests)
    largest, token_ids = logits.max(dim=-1)  # among equals the first; NaN counts as largest
    drawn = rows_where(requests, lambda request: request.sampling.temperature > 0)
    if drawn:
        token_ids[drawn] = draw(logits[drawn], [requests[row] for row in drawn])
    found = zip(requests, token_ids.tolist(), largest.tolist(), strict=True)
    results = [result_of(request, *row, vocab=logits.shape[-1]) for request, *row in found]
    return with_logprobs(results, raw, requests)


def column(values: Sequence[float], like: Tensor) -> Tensor:
    """One value per row, float64 `[R, 1]`, on the device of `like`."""
    return torch.tensor(values, dtype=torch.float64, device=like.device)[:, None]


def draw(logits: Tensor, requests: Sequence) -> Tensor:
    """A token for each request with a temperature above 0, `[R]`.

    First each row is divided by its own temperature (`apply_temperature`). Then the FILTERS, in
    their order: each on the rows that ask for it, with their own values. What is left is drawn
    from with one number of `uniform`, which depends on the request's own seed and on how many
    output tokens it has: on no neighbour, no row, and no generator that has a state.
    """
    logits = apply_temperature(logits, column([r.sampling.temperature for r in requests], logits))
    for name, asks, keep in FILTERS:
        values = [getattr(request.sampling, name) for request in requests]
        rows = [row for row, value in enumerate(values) if asks(value)]
        if rows:
            logits[rows] = keep(logits[rows], column([values[row] for row in rows], logits))
    numbers = [uniform(request.seed, len(request.output_token_ids)) for request in requests]
    return pick(logits, column(numbers, logits))


def apply_temperature(logits: Tensor, temperature: Tensor) -> Tensor:
    """The largest logit becomes 0 first, so that a tiny temperature can't make it infinite."""
    least = torch.finfo(torch.float32).tiny
    shifted = logits - logits.amax(dim=-1, keepdim=True)
    return shifted / temperature.float().clamp(min=least)


def keep_min_p(logits: Tensor, min_p: Tensor) -> Tensor:
    """Tokens at least `min_p` times as probable as the best one; the others become -inf."""
    floor = logits.amax(dim=-1, keepdim=True) + min_p.log().float()
    return logits.masked_fill(logits < floor, -inf)


def keep_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """The `top_k` most likely tokens, and those as likely as the last of them."""
    top_k = top_k.long().clamp(max=logits.shape[-1])
    ranked = logits.topk(int(top_k.max())).values
    return logits.masked_fill(logits < ranked.gather(-1, top_k - 1), -inf)


def keep_top_p(logits: Tensor, top_p: Tensor, candidates: int = NUM_CANDIDATES) -> Tensor:
    """The fewest most likely tokens that together have a probability of `top_p` or more.

    A token stays if those before it have less than `top_p`, or if it is as likely as one that
    stays: which of two equals comes first is no property of the model. To sort a vocabulary
    takes longer than all else here, so only rows whose few `candidates` fall short do.
    """
    vocab = logits.shape[-1]
    # Not logsumexp: torch splits the sum of a row that is alone, which changes its last bits.
    logprobs = logits.log_softmax(dim=-1)
    ranked = logprobs.topk(min(candidates, vocab)).values
    through = ranked.double().exp().cumsum(dim=-1)
    last = (through < top_p).sum(dim=-1, keepdim=True).clamp(max=ranked.shape[-1] - 1)
    kept = logits.masked_fill(logprobs < ranked.gather(-1, last), -inf)
    short = through[:, -1] < top_p[:, 0]
    if candidates < vocab and short.any():
        kept[short] = keep_top_p(logits[short], top_p[short], candidates=vocab)
    return kept


FILTERS = (
    ("min_p", lambda value: value > 0, keep_min_p),
    ("top_k", lambda value: value > 0, keep_top_k),
    ("top_p", lambda value: value < 1, keep_top_p),
)


def pick(logits: Tensor, numbers: Tensor) -> Tensor:
    """The token at which the cumulative probability passes `numbers`, `[R, 1]` in [0, 1).

    Tokens lie side by side in the order of the vocabulary, each as wide as it is probable. Those
    of probability 0 are set to 0, which no target is below: the parallel sum of a GPU rounds each
    place by itself, and could let one stand out.
    """
    weights = (logits - logits.amax(dim=-1, keepdim=True)).exp()
    through = weights.cumsum(dim=-1, dtype=torch.float64).masked_fill(weights == 0, 0.0)
    target = numbers * through.amax(dim=-1, keepdim=True)  # < the largest, since numbers < 1
    return (through > target).max(dim=-1).indices  # the first True


def result_of(request, token_id: int, largest: float, vocab: int) -> Sampled:
    """The token, unless the row's `largest` logit or the request's bias say that there is none."""
    beyond = [token for token in request.sampling.logit_bias if token >= vocab]
    if beyond:
        known = f"the vocabulary ends at {vocab - 1}"
        return Sampled(None, error=f"logit_bias names token {beyond[0]}, {known}; leave it out")
    if isfinite(largest):
        return Sampled(token_id)
    if largest == -inf:
        return Sampled(None, error="no token is left: all logits are -inf; allow more tokens")
    return Sampled(None, error=f"the largest logit is {largest}; look at the model's weights")


def with_logprobs(results: list[Sampled], raw: Tensor, requests: Sequence) -> list[Sampled]:
    """`results`, completed in the rows that ask for logprobs and have a token."""
    rows = [
        row
        for row in rows_where(requests, lambda request: request.sampling.logprobs is not None)
        if results[row].error is None
    ]
    if rows:
        counts = [requests[row].sampling.logprobs for row in rows]
        chosen = [results[row].token_id for row in rows]
        for row, logprobs in zip(rows, logprobs_of(raw[rows], chosen, counts), strict=True):
            results[row] = replace(results[row], logprobs=logprobs)
    return results


def logprobs_of(logits: Tensor, token_ids: list[int], counts: list[int]) -> list[Logprobs]:
    """Of the token chosen in each row, with `counts` alternatives (fewer in a small vocabulary)."""
    logprobs = logits.log_softmax(dim=-1)
    chosen = logprobs.gather(-1, torch.tensor(token_ids, device=logits.device)[:, None])
    ranks = (logprobs > chosen).sum(dim=-1) + 1
    best = logprobs.topk(min(max(counts), logits.shape[-1]))
    found = zip(
        chosen[:, 0].tolist(),
        ranks.tolist(),
        best.indices.tolist(),
        best.values.tolist(),
        counts,
        strict=True,
    )
    return [
        Logprobs(logprob, rank, tuple(zip(ids[:count], values[:count], strict=True)))
        for logprob, rank, ids, values, count in found
    ]
