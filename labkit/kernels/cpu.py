"""Paged attention on a CPU without copying a block: two products with a sparse matrix.

Seen as one tall matrix, the cache has a row for every key of every slot. The scores of a query
are its products with some of these rows, anywhere in memory: a *sampled* matrix product, of
which only the entries listed in a sparse pattern are computed. The output is a weighted sum of
some rows of values: what torch calls an embedding bag. Both read every key and value once, where
it lies; gathering them first would move each three times.

Written for one new token per request. Longer chunks gather their blocks: they do many products
with each key, and the copy doesn't matter.
"""

import warnings

import torch
import torch.nn.functional as F

from labkit.kernels.reference import attend, gather

LANES = 64  # a multiple of the numbers that a register of any CPU holds
LIKE = 256  # contexts up to so many tokens go together; above, those within a factor of two


class CPUAttention:
    """Decoding requests in groups of like length, the others one by one."""

    def __init__(self, batch, num_heads: int, num_kv_heads: int):
        self.batch = batch
        starts = batch.query_start.tolist()
        groups: dict[int, list[int]] = {}
        self.chunks = []  # (request, begin, end, context_len)
        for r, (length, context_len) in enumerate(
            zip(batch.query_lens, batch.context_lens, strict=True)
        ):
            if length == 1:
                groups.setdefault(max(LIKE, context_len - 1).bit_length(), []).append(r)
            else:
                self.chunks.append((r, starts[r], starts[r + 1], context_len))
        self.groups = [SparseDecode(batch, rs, num_heads, num_kv_heads) for rs in groups.values()]

    def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        if len(self.groups) == 1 and not self.chunks:
            return self.groups[0](q, kv)
        out = torch.empty_like(q)
        for group in self.groups:
            out.index_copy_(0, group.rows, group(q.index_select(0, group.rows), kv))
        for r, begin, end, context_len in self.chunks:
            num_blocks = -(-context_len // self.batch.block_size)
            own = gather(kv, self.batch.block_tables[r, :num_blocks], context_len)
            out[begin:end] = attend(q[begin:end], own, context_len - (end - begin))
        return out


class SparseDecode:
    """One new token each for the requests `requests` of a batch.

    The pattern has a row for every query head, in it a column for every key that it sees:
    `columns` are the rows of the cache that hold these keys. `places` says where the entries
    stand in a table of scores that is padded past the longest context, over whose rows the
    softmax goes. Padded to whole registers: otherwise the order in which the softmax adds up a
    row, and with it the last bits, would depend on the longest neighbour.
    """

    def __init__(self, batch, requests: list[int], num_heads: int, num_kv_heads: int):
        size = batch.block_size
        self.rows = batch.query_start[:-1][requests]
        self.values_after = num_kv_heads * size  # in a block the values follow the keys
        lengths = torch.tensor([batch.context_lens[r] for r in requests])
        longest = int(lengths.max())
        tables = batch.block_tables[requests, : -(-longest // size)]
        kv_head = torch.arange(num_heads) // (num_heads // num_kv_heads)
        starts = tables.unsqueeze(1) * (2 * num_kv_heads) + kv_head.unsqueeze(1)
        columns = (starts.unsqueeze(3) * size + torch.arange(size)).flatten(2)[..., :longest]
        seen = torch.arange(longest) < lengths.view(-1, 1, 1)
        seen = seen.expand(columns.shape)  # [R, heads, longest]
        self.columns = columns[seen]
        width = -(-longest // LANES) * LANES
        self.places = F.pad(seen, (0, width - longest)).flatten().nonzero().flatten()
        self.scores = torch.full((len(requests) * num_heads, width), float("-inf"))
        ends = lengths.repeat_interleave(num_heads).cumsum(0)
        self.row_starts = F.pad(ends, (1, 0))  # [R * heads + 1]
        self.pattern = None

    def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        head_dim = q.shape[-1]
        vectors = kv.view(-1, head_dim)  # every key and value of the layer, one a row
        if self.pattern is None:
            self.pattern = self.make_pattern(len(vectors))
        products = torch.sparse.sampled_addmm(
            self.pattern,
            q.reshape(-1, head_dim),
            vectors.t(),
            beta=0.0,
            alpha=head_dim**-0.5,
            out=self.pattern,
        ).values()
        self.scores.view(-1).index_copy_(0, self.places, products)
        weights = torch.softmax(self.scores, dim=1).view(-1).index_select(0, self.places)
        out = F.embedding_bag(
            self.columns,
            vectors[self.values_after :],
            self.row_starts[:-1],
            mode="sum",
            per_sample_weights=weights,
        )
        return out.view_as(q)

    def make_pattern(self, num_vectors: int) -> torch.Tensor:
        """The entries that are to be computed, as a sparse matrix of zeros."""
        with warnings.catch_warnings():  # "Sparse CSR tensor support is in beta state"
            warnings.simplefilter("ignore")
            return torch.sparse_csr_tensor(
                self.row_starts,
                self.columns,
                torch.zeros(len(self.columns)),
                size=(len(self.scores), num_vectors),
                check_invariants=False,
            )
