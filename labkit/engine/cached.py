"""Rung 3: batches of four with a KV cache, one long row of memory for each.

Keys and values of a token never change, so they are computed once and kept. Every row of the
cache is as long as the longest request may get: simple, and mostly empty.
"""

from collections.abc import Iterable

import torch

from labkit.engine.batches import BatchEngine
from labkit.engine.request import Request
from labkit.engine.runner import Runner
from labkit.model.kv_cache import KVCache


class CachedEngine(BatchEngine):
    """Serves its requests in batches of `batch_size`; each row holds `max_model_len` tokens.

    A row of `[batch_size, max_model_len]` is one block of a cache whose blocks are that long:
    row i of the batch has the block table `[i]`.
    """

    def __init__(
        self,
        decoder,
        eos_token_ids: Iterable[int],
        batch_size: int = 4,
        max_model_len: int = 1024,
        **options,
    ):
        super().__init__(eos_token_ids, batch_size, **options)
        self.max_model_len = max_model_len
        cache = KVCache(decoder.config, batch_size, max_model_len, decoder.dtype, decoder.device)
        self.runner = Runner(decoder, cache)

    def refuse_what_never_fits(self, request: Request) -> None:
        asked = request.num_prompt_tokens + request.max_tokens
        if asked > self.max_model_len:
            raise ValueError(
                f"request {request.request_id!r}: {request.num_prompt_tokens} prompt tokens and "
                f"max_tokens {request.max_tokens} make {asked}, a row of the cache holds "
                f"{self.max_model_len}; shorten the prompt or ask for fewer tokens"
            )

    def next_batch(self) -> list[Request]:
        """Takes the requests of the next batch from the line, and gives each a row.

        `BatchEngine.next_batch` takes them; row i of the cache belongs to request i of the batch,
        so its block table is `[i]`. The row still holds what its last owner left there: nothing
        of a request is computed here yet, whatever was in a cache that it has had before.
        """
        batch = super().next_batch()
        for row, request in enumerate(batch):
            request.block_table, request.num_computed_tokens = [row], 0
        return batch

    def next_logits(self, running: list[Request]) -> torch.Tensor:
        return self.runner.catch_up(running)

    def release(self, request: Request) -> None:
        request.block_table = []
