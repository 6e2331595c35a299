"""Paged attention, three ways to compute it, against a softmax written out here."""

import random

import pytest
import torch

from labkit.kernels.cpu import CPUAttention
from labkit.kernels.reference import GatheredAttention, PagedAttention
from labkit.model.flat_batch import FlatBatch, Span

HEAD_DIM = 16
COMPILED_DIMS = (64, 128)  # which the loops know when they are compiled
HEADS = [(4, 4), (4, 2), (6, 2), (3, 1)]  # heads, kv heads
MIXED = [(1, 1), (700, 1), (37, 5), (5, 5), (300, 1), (64, 64), (699, 2), (255, 1), (129, 1)]
DECODE = [(n, 1) for n in (1, 2, 15, 16, 17, 255, 256, 257, 258, 511, 513, 700)]


class Case:
    """Requests of `(context_len, query_len)` with random queries, keys and values.

    What no request has written is `unused`: the blocks that nobody holds, and the slots after
    the last token of a block.
    """

    def __init__(
        self, lengths, heads=4, kv_heads=2, block_size=16, unused=0.0, seed=0, dim=HEAD_DIM
    ):
        self.heads, self.kv_heads, self.block_size, self.dim = heads, kv_heads, block_size, dim
        self.generator = torch.Generator().manual_seed(seed)
        counts = [-(-context // block_size) for context, _ in lengths]
        num_blocks = sum(counts) + 3
        free = list(range(num_blocks))
        random.Random(seed).shuffle(free)
        self.cache = torch.full((num_blocks, 2, kv_heads, block_size, dim), unused)
        self.keys, self.values, spans = [], [], []
        for (context, query), count in zip(lengths, counts, strict=True):
            table = [free.pop() for _ in range(count)]
            keys, values = self.random(context, kv_heads), self.random(context, kv_heads)
            positions = torch.arange(context)
            blocks = torch.tensor(table)[positions // block_size]
            self.cache[blocks, 0, :, positions % block_size] = keys
            self.cache[blocks, 1, :, positions % block_size] = values
            self.keys.append(keys)
            self.values.append(values)
            spans.append(Span([0] * query, context - query, table))
        self.batch = FlatBatch.build(spans, block_size)
        self.q = self.random(sum(query for _, query in lengths), heads)

    def random(self, tokens: int, heads: int) -> torch.Tensor:
        return torch.randn(tokens, heads, self.dim, generator=self.generator)

    def dense(self, window: int | None = None) -> torch.Tensor:
        """The definition, in float64: for each query a softmax over the keys up to its own, or
        over the last `window` of them."""
        rows, group = [], self.heads // self.kv_heads
        starts = self.batch.query_start.tolist()
        for r, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            keys, values = (x.double().repeat_interleave(group, dim=1) for x in (keys, values))
            queries = self.q[starts[r] : starts[r + 1]].double()
            scores = torch.einsum("qhd,khd->hqk", queries, keys) / self.dim**0.5
            own = torch.arange(len(keys) - len(queries), len(keys)).unsqueeze(1)
            scores[:, torch.arange(len(keys)) > own] = float("-inf")
            scores[:, torch.arange(len(keys)) <= own - (window or len(keys))] = float("-inf")
            rows.append(torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), values))
        return torch.cat(rows).float()

    def by(self, kind) -> torch.Tensor:
        attention = kind(self.batch)
        first = attention(self.q, self.cache)
        again = attention(self.q, self.cache)  # one object serves all layers of a step
        torch.testing.assert_close(again, first, rtol=0, atol=0, equal_nan=True)
        return first


KINDS = [CPUAttention, PagedAttention, GatheredAttention]


def check_all(case: Case) -> None:
    wanted = case.dense()
    for kind in KINDS:
        torch.testing.assert_close(
            case.by(kind), wanted, rtol=1e-4, atol=1e-5,
            msg=lambda difference, kind=kind: f"{kind.__name__}: {difference}",
        )  # fmt: skip


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("lengths", [MIXED, DECODE], ids=["mixed", "decode"])
def test_every_way_gives_the_softmax_over_the_keys_seen(heads, kv_heads, lengths):
    check_all(Case(lengths, heads, kv_heads))


@pytest.mark.parametrize("dim", COMPILED_DIMS)
@pytest.mark.parametrize("lengths", [MIXED, DECODE], ids=["mixed", "decode"])
def test_whatever_the_size_of_a_head(dim, lengths):
    check_all(Case(lengths, dim=dim))


@pytest.mark.parametrize("block_size", [1, 8, 64])
@pytest.mark.parametrize("lengths", [MIXED, DECODE], ids=["mixed", "decode"])
def test_whatever_the_size_of_a_block(block_size, lengths):
    check_all(Case(lengths, block_size=block_size, seed=block_size))


@pytest.mark.parametrize("seed", range(6))
def test_all_agree_on_random_batches(seed):
    rng = random.Random(seed)
    lengths = []
    for _ in range(rng.randint(1, 8)):
        context = rng.choice([rng.randint(1, 30), rng.randint(1, 300), rng.randint(1, 700)])
        lengths.append((context, rng.choice([1, 1, min(context, rng.randint(1, 40))])))
    heads, kv_heads = rng.choice(HEADS)
    check_all(Case(lengths, heads, kv_heads, rng.choice([1, 4, 16, 32]), seed=seed))


@pytest.mark.parametrize("lengths", [MIXED, DECODE, [(n, 1) for n in range(1, 80)]])
def test_on_a_cpu_a_request_gets_the_same_bits_alone_and_beside_others(lengths):
    """A bit is enough to change a token where what follows rounds to 8-bit integers."""
    case = Case(lengths)
    together, starts = case.by(CPUAttention), case.batch.query_start.tolist()
    for r, (begin, end) in enumerate(zip(starts, starts[1:], strict=False)):
        context, query = lengths[r]
        span = Span([0] * query, context - query, case.batch.block_tables[r].tolist())
        attention = CPUAttention(FlatBatch.build([span], 16))
        alone = attention(case.q[begin:end], case.cache)
        assert torch.equal(alone, together[begin:end]), lengths[r]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("garbage", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("lengths", [MIXED, DECODE, DECODE[:1]], ids=["mixed", "decode", "one"])
def test_what_stands_in_unused_slots_does_not_matter(kind, garbage, lengths):
    clean, dirty = Case(lengths), Case(lengths, unused=garbage)
    assert torch.equal(dirty.by(kind), clean.by(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [MIXED, DECODE], ids=["mixed", "decode"])
def test_a_broken_request_does_not_break_its_neighbours(kind, lengths):
    """Its keys and values are NaN, as those of a model that overflows are."""
    clean, broken = Case(lengths), Case(lengths)
    for block in broken.batch.block_tables[1, : -(-lengths[1][0] // 16)].tolist():
        broken.cache[block] = float("nan")
    first, last = broken.batch.query_start[1:3].tolist()
    ours, wanted = broken.by(kind), clean.by(kind)
    assert ours[first:last].isnan().all()
    for part in (slice(0, first), slice(last, None)):
        assert torch.equal(ours[part], wanted[part])


@pytest.mark.parametrize("kind", [PagedAttention, GatheredAttention])
@pytest.mark.parametrize("lengths", [MIXED, DECODE], ids=["mixed", "decode"])
def test_bfloat16_as_on_a_gpu(kind, lengths):
    case = Case(lengths)
    wanted = case.dense()
    case.cache, case.q = case.cache.bfloat16(), case.q.bfloat16()
    found = case.by(kind)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), wanted, rtol=0.05, atol=0.03)
