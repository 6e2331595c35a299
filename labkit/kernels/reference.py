"""Paged attention as it reads in a textbook: gather the blocks of a sequence, then attend."""

from itertools import accumulate

import torch
import torch.nn.functional as F


def attend(q: torch.Tensor, kv: torch.Tensor, start: int) -> torch.Tensor:
    """Causal attention of n queries of one sequence, the first of them at position `start`.

    `q` is `[n, heads, head_dim]`; `kv` is `[2, kv_heads, start + n, head_dim]`, the sequence's
    keys and values in order. Each group of `heads / kv_heads` query heads, side by side, shares
    one kv head. Query i sees the positions up to its own, `start + i`; a score is q · k divided
    by the square root of head_dim. Returns `[n, heads, head_dim]`, of the dtype and on the device
    of `q`.
    """
    queries = q.transpose(0, 1).unsqueeze(0)  # [1, heads, n, head_dim]
    keys, values = kv.unsqueeze(1)  # [1, kv_heads, start + n, head_dim] each
    sees = None if start == 0 else causal_mask(len(q), start, q.device)
    out = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=sees, is_causal=start == 0, enable_gqa=True
    )
    return out[0].transpose(0, 1)


def causal_mask(n: int, start: int, device) -> torch.Tensor:
    """Which of `start + n` positions each of the last n sees: its own and those before it."""
    return torch.ones(n, start + n, dtype=torch.bool, device=device).tril(start)


def gather(kv: torch.Tensor, block_table: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """Keys and values of one sequence in order: `[2, kv_heads, num_tokens, head_dim]`, copied."""
    return kv[block_table].permute(1, 2, 0, 3, 4).flatten(2, 3)[:, :, :num_tokens]


class PagedAttention:
    """The reference: one request after the other."""

    def __init__(self, batch):
        self.batch = batch
        starts = [0, *accumulate(batch.query_lens)]
        self.spans = list(zip(starts, starts[1:], batch.context_lens, strict=False))

    def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """Attention of every request's new tokens to all of its own, wherever its blocks lie.

        `q` is `[T, heads, head_dim]`: request r has the rows `begin` to `end` of `spans[r]`, and
        they are the last ones of its `context_len` tokens. `kv` is one layer of the cache,
        `[num_blocks, 2, kv_heads, block_size, head_dim]`, and holds their keys and values
        already. A row of `block_tables` may be longer than its request needs. Returns a tensor
        like `q`.
        """
        out = torch.empty_like(q)
        for r, (begin, end, context_len) in enumerate(self.spans):
            num_blocks = -(-context_len // self.batch.block_size)
            own = gather(kv, self.batch.block_tables[r, :num_blocks], context_len)
            out[begin:end] = attend(q[begin:end], own, context_len - (end - begin))
        return out


class GatheredAttention(PagedAttention):
    """For a GPU: all requests with one new token at once, over blocks gathered side by side.

    Nothing here depends on a length, only on shapes, so that a CUDA graph of a decode step
    stays right while sequences grow: what lies past a sequence's end is masked. It is set to 0,
    too: there may be a NaN of a request that had the block before, and 0 times NaN is NaN.
    """

    def __init__(self, batch):
        super().__init__(batch)
        self.is_decode = max(batch.query_lens) == 1
        # For one new token, its position + 1 is the context length, and it is on the device.
        span = torch.arange(
            batch.block_tables.shape[1] * batch.block_size, device=batch.positions.device
        )
        self.sees = span[None] <= batch.positions[:, None] if self.is_decode else None

    def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        if not self.is_decode:
            return super().__call__(q, kv)
        own = kv[self.batch.block_tables]  # [R, max_blocks, 2, kv_heads, block_size, head_dim]
        past = ~self.sees.unflatten(1, (-1, self.batch.block_size))[:, :, None, None, :, None]
        own.masked_fill_(past, 0.0)
        keys, values = own.permute(2, 0, 3, 1, 4, 5).flatten(3, 4)  # [R, kv_heads, tokens, ...]
        out = F.scaled_dot_product_attention(
            q.unsqueeze(2), keys, values, attn_mask=self.sees[:, None, None], enable_gqa=True
        )
        return out.squeeze(2)
