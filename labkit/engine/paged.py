"""Rung 4: fixed batches whose memory comes in blocks, as it is needed.

A request holds as many blocks as its tokens so far fill, not a row for the longest that there
may be. The same memory holds more requests, so a batch is larger.
"""

from collections.abc import Iterable

import torch

from labkit.engine.batches import BatchEngine
from labkit.engine.blocks import BlockPool
from labkit.engine.request import Request
from labkit.engine.runner import Runner
from labkit.model.kv_cache import KVCache


class PagedEngine(BatchEngine):
    """Serves its requests in batches of up to `batch_size`, over block tables.

    A batch takes requests from the line as long as the pool holds all of them at their longest,
    so nobody runs out of blocks on the way.
    """

    def __init__(
        self,
        decoder,
        eos_token_ids: Iterable[int],
        num_blocks: int,
        block_size: int = 16,
        batch_size: int = 16,
        max_model_len: int | None = None,
        **options,
    ):
        super().__init__(eos_token_ids, batch_size, **options)
        self.pool = BlockPool(num_blocks, block_size, prefix_caching=False)
        self.max_model_len = max_model_len or num_blocks * block_size
        cache = KVCache(decoder.config, num_blocks, block_size, decoder.dtype, decoder.device)
        self.runner = Runner(decoder, cache)

    def most_blocks(self, request: Request) -> int:
        """How many blocks a request may come to hold; its last token is never fed back."""
        return self.pool.blocks_for(request.num_prompt_tokens + request.max_tokens - 1)

    def refuse_what_never_fits(self, request: Request) -> None:
        asked = request.num_prompt_tokens + request.max_tokens
        if asked > self.max_model_len or self.most_blocks(request) > self.pool.num_blocks:
            raise ValueError(
                f"request {request.request_id!r}: {request.num_prompt_tokens} prompt tokens and "
                f"max_tokens {request.max_tokens} make {asked}; at most {self.max_model_len} are "
                f"allowed, and the pool has {self.pool.num_blocks} blocks of "
                f"{self.pool.block_size}; shorten the prompt or ask for fewer tokens"
            )

    def next_batch(self) -> list[Request]:
        batch, left = [], self.pool.num_blocks
        while self.line and len(batch) < self.batch_size:
            left -= self.most_blocks(self.line[0])
            if left < 0:
                break
            batch.append(self.line.popleft())
        return batch

    def next_logits(self, running: list[Request]) -> torch.Tensor:
        for request in running:
            missing = self.pool.blocks_for(request.num_tokens) - len(request.block_table)
            request.block_table += self.pool.allocate(missing)
        return self.runner.catch_up(running)

    def release(self, request: Request) -> None:
        self.pool.free(request.block_table)
        request.block_table = []
