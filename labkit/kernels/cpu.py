"""Paged attention on a CPU: requests with one new token together, where their blocks lie."""

import numpy as np
import torch

from labkit.kernels import attention, loops
from labkit.kernels.chunks import attend_chunks


class CPUAttention:
    """Longer chunks gather their blocks: they do many products with each key, and the copy
    doesn't matter."""

    def __init__(self, batch):
        self.batch = batch
        starts = batch.query_start.tolist()
        spans = list(zip(batch.query_lens, starts, batch.context_lens, strict=False))
        decoding = [r for r, (length, _, _) in enumerate(spans) if length == 1]
        context_lens = torch.tensor(batch.context_lens)[decoding]
        tensors = (batch.query_start[decoding], batch.block_tables[decoding], context_lens)
        self.decoding = tuple(tensor.numpy() for tensor in tensors)  # for `attention.attend`
        # request, number of tokens, first row, tokens that the last one sees
        self.chunks = [(r, *span) for r, span in enumerate(spans) if span[0] > 1]

    def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """As `reference.PagedAttention`; `CPUDecoder` calls the parts of this in its own loops."""
        out = torch.empty(q.shape)
        loops.share_threads()
        attention.attend(q.contiguous().numpy(), kv.numpy(), *self.decoding, out.numpy())
        self.attend_chunks(q.contiguous(), kv, out)
        return out

    def attend_chunks(self, q: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        """Fills the rows of `out` that belong to chunks. `q` and `out` are contiguous."""
        if self.chunks:
            chunks, tables = np.array(self.chunks), self.batch.block_tables.numpy()
            attend_chunks(q.numpy(), kv.numpy(), chunks, tables, out.numpy())
