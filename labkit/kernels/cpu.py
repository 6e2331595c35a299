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

LIKE = 256  # contexts up to so many tokens go together; above, those within a factor of two


class CPUAttention:
    """Decoding requests in groups of like length, the others one by one."""

    def __init__(self, batch, num_heads: int, num_slots: int):
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
        self.groups = [SparseDecode(batch, rs, num_heads, num_slots) for rs in groups.values()]

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
    key and value of slot s, kv head g are rows `s * 2 * kv_heads + g` and `kv_heads` further of
    the cache. `places` says where the entries stand in a table of scores that is padded to the
    longest context, over whose rows the softmax goes.
    """

    def __init__(self, batch, requests: list[int], num_heads: int, num_slots: int):
        self.num_heads, self.num_slots = num_heads, num_slots
        self.rows = batch.query_start[:-1][requests]
        lengths = torch.tensor([batch.context_lens[r] for r in requests])
        self.longest = int(lengths.max())
        num_blocks = -(-self.longest // batch.block_size)
        tables = batch.block_tables[requests, :num_blocks]
        offsets = torch.arange(batch.block_size)
        self.slots = (tables.unsqueeze(2) * batch.block_size + offsets).flatten(1)
        self.slots = self.slots[:, : self.longest]  # [R, longest]
        self.seen = torch.arange(self.longest) < lengths.unsqueeze(1)  # [R, longest]
        ends = lengths.repeat_interleave(num_heads).cumsum(0)
        self.row_starts = F.pad(ends, (1, 0))  # [R * heads + 1]
        self.pattern = None

    def prepare(self, kv: torch.Tensor) -> None:
        """Makes the pattern, once the first layer shows how many kv heads there are."""
        num_kv_heads, num_heads = kv.shape[3], self.num_heads
        kv_head = torch.arange(num_heads) // (num_heads // num_kv_heads)
        columns = self.slots.unsqueeze(1) * (2 * num_kv_heads) + kv_head.unsqueeze(1)
        seen = self.seen.unsqueeze(1).expand_as(columns)  # [R, heads, longest]
        self.columns = columns[seen]
        self.places = seen.flatten().nonzero().flatten()
        self.scores = torch.full((len(self.slots) * num_heads, self.longest), float("-inf"))
        with warnings.catch_warnings():  # "Sparse CSR tensor support is in beta state"
            warnings.simplefilter("ignore")
            self.pattern = torch.sparse_csr_tensor(
                self.row_starts,
                self.columns,
                torch.zeros(len(self.columns)),
                size=(len(self.slots) * num_heads, self.num_slots * 2 * num_kv_heads),
                check_invariants=False,
            )

    def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        if self.pattern is None:
            self.prepare(kv)
        head_dim = q.shape[-1]
        vectors = kv.view(-1, head_dim)  # every key and value of the layer, one a row
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
        values = vectors[kv.shape[3] :]  # a value stands `kv_heads` rows after its key
        out = F.embedding_bag(
            self.columns, values, self.row_starts[:-1], mode="sum", per_sample_weights=weights
        )
        return out.view_as(q)
