"""From requests to logits: the next tokens of some requests through the decoder, in one batch."""

from collections.abc import Sequence

import torch

from labkit.engine.plan import StepPlan
from labkit.engine.request import Request
from labkit.model.flat_batch import FlatBatch, Span


def span_of(request: Request, num_tokens: int) -> Span:
    """The next `num_tokens` tokens of a request, as the decoder takes them.

    Keys and values of its first `num_computed_tokens` are in the cache. The span has the tokens
    from there on, prompt or output (`request.tokens_between`), and starts at that position; its
    block table is the request's, which has room for them. It samples when it reaches the last
    known token: whoever stops earlier has nothing to ask yet. The request stays as it is.
    """
    start = request.num_computed_tokens
    end = start + num_tokens
    return Span(
        request.tokens_between(start, end), start, request.block_table, end == request.num_tokens
    )


class Runner:
    """A decoder with its KV cache, and room on the host for blocks that are swapped out."""

    def __init__(self, decoder, cache, host_cache=None):
        self.decoder, self.cache, self.host_cache = decoder, cache, host_cache

    def copy(self, plan: StepPlan) -> None:
        """What a step copies before it computes: to the host, back from it, and in the cache."""
        if plan.swap_out:
            self.cache.copy_to(self.host_cache, plan.swap_out)
        if plan.swap_in:
            self.host_cache.copy_to(self.cache, plan.swap_in)
        self.cache.copy_blocks(plan.block_copies)

    def run(self, parts: Sequence[tuple[Request, int]]) -> torch.Tensor:
        """One step over (request, how many of its next tokens) pairs.

        Returns logits `[R_sampled, vocab]`, a row for each request all of whose known tokens
        are computed with this step, in order.
        """
        spans = [span_of(request, num_tokens) for request, num_tokens in parts]
        batch = FlatBatch.build(spans, self.cache.block_size, self.decoder.device)
        return self.decoder(batch, self.cache)

    def catch_up(self, requests: Sequence[Request]) -> torch.Tensor:
        """All known tokens of `requests` that are not computed yet; logits `[R, vocab]`.

        That is the whole prompt in the first step, and one token in each step after it.
        """
        logits = self.run([(r, r.num_tokens - r.num_computed_tokens) for r in requests])
        for request in requests:
            request.num_computed_tokens = request.num_tokens
        return logits
