"""What notebook 05 runs on the NumPy twin of Triton, the kernel language: paged decoding, and the
bytes that four ways to do it move. Needs neither torch nor Triton, but for `by_reference`.

A *module* is `labkit.kernels.gpu.paged`, or a learner's, on the twin: see `twin.in_numpy`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from labkit.kernels.gpu import twin
from labkit.kernels.gpu.twin import Trace

NO_WINDOW = 2**30
LEAST_ROWS = 4  # the twin takes fewer than the 16 that tensor cores work on


@dataclass(frozen=True)
class Paged:
    """Sequences in a pool, each with one new token, the last: what decode attention works on."""

    q: np.ndarray  # [R, heads, head_dim]
    kv: np.ndarray  # [num_blocks, 2, kv_heads, block_size, head_dim]; NaN where nobody wrote
    tables: np.ndarray  # [R, max_blocks]
    lengths: tuple[int, ...]  # tokens of each, the new one included
    own: tuple[np.ndarray, ...]  # of each sequence [2, length, kv_heads, head_dim], in order

    @property
    def group(self) -> int:
        return self.q.shape[1] // self.kv.shape[2]

    @property
    def least_bytes(self) -> int:
        """Each key and value read once, each query read, each result written."""
        return sum(numbers.nbytes for numbers in self.own) + 2 * self.q.nbytes


def sequences(
    lengths: Sequence[int], heads=8, kv_heads=2, head_dim=16, block_size=16, seed=0
) -> Paged:
    """Random sequences in shuffled blocks, three of which nobody holds."""
    random = np.random.default_rng(seed)
    counts = [-(-length // block_size) for length in lengths]
    free = [*random.permutation(sum(counts) + 3)]
    kv = np.full((len(free), 2, kv_heads, block_size, head_dim), np.nan, np.float32)
    tables, own = np.zeros((len(lengths), max(counts)), np.int64), []
    for r, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        tables[r, :count] = [free.pop() for _ in range(count)]
        own.append(random.standard_normal((2, length, kv_heads, head_dim), np.float32))
        places = np.arange(length)
        for kind in (0, 1):
            kv[tables[r, places // block_size], kind, :, places % block_size] = own[r][kind]
    q = random.standard_normal((len(lengths), heads, head_dim), np.float32)
    return Paged(q, kv, tables, tuple(lengths), tuple(own))


def definition(case: Paged) -> np.ndarray:
    """The softmax over all keys at once, in float64: like `case.q`."""
    out = []
    for q, (keys, values) in zip(case.q.astype(float), case.own, strict=True):
        keys, values = (np.repeat(x.astype(float), case.group, axis=1) for x in (keys, values))
        scores = np.einsum("hd,thd->ht", q, keys) / q.shape[1] ** 0.5
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out.append(np.einsum("ht,thd->hd", weights / weights.sum(axis=1, keepdims=True), values))
    return np.stack(out)


def by_reference(case: Paged) -> np.ndarray:
    """The same by notebook 04's attention: gather, then torch's."""
    import torch

    from labkit.kernels.reference import PagedAttention

    batch = SimpleNamespace(
        block_size=case.kv.shape[3], block_tables=torch.from_numpy(case.tables),
        query_lens=[1] * len(case.lengths), context_lens=[*case.lengths],
    )  # fmt: skip
    return PagedAttention(batch)(torch.from_numpy(case.q), torch.from_numpy(case.kv)).numpy()


@dataclass(frozen=True)
class Done:
    """A result and what its launches did."""

    out: np.ndarray  # like q
    traces: tuple[Trace, ...]

    def moved(self, *names: str) -> int:
        """Bytes that were read and written of these arrays."""
        kinds = [(name, kind) for name in names for kind in ("read", "write")]
        return sum(trace.bytes_moved(*which) for trace in self.traces for which in kinds)


def power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()


def decode(module, case: Paged, splits: int = 1, tile: int = 16, window=NO_WINDOW) -> Done:
    """`decode_kernel` of a module, a program for each kv head, and its merge if there are parts."""
    n, heads, head_dim = case.q.shape
    kv_heads, block_size = case.kv.shape[2:4]
    out, rows = np.zeros_like(case.q), np.arange(n)
    positions = np.array(case.lengths) - 1
    maxima, totals = np.zeros((2, n, heads, splits), np.float32)
    parts = np.zeros((n, heads, splits, head_dim), np.float32)
    dim = power_of_two(head_dim)
    first = module.decode_kernel[n, kv_heads, splits](
        case.q, case.kv, rows, rows, positions, case.tables, out, maxima, totals, parts,
        case.tables.shape[1], head_dim**-0.5, window, KV_HEADS=kv_heads, GROUP=case.group,
        ROWS=power_of_two(max(case.group, LEAST_ROWS)), HEAD_DIM=head_dim, DIM=dim,
        BLOCK_SIZE=block_size, TILE=tile, SPLITS=splits,
    )  # fmt: skip
    if splits == 1:
        return Done(out, (first,))
    second = module.merge_kernel[n, heads](
        rows, maxima, totals, parts, out, HEADS=heads, HEAD_DIM=head_dim, DIM=dim, SPLITS=splits
    )
    return Done(out, (first, second))


def decode_by_heads(module, case: Paged, tile: int = 16) -> Done:
    """A program for each *query* head, as the first paged kernels had it: keys come GROUP times."""
    n, heads, dim = case.q.shape
    kv_heads, block_size = case.kv.shape[2:4]
    out, group, tl = np.zeros_like(case.q), case.group, module.tl

    def kernel(q, kv, tables, out):
        r, head = tl.program_id(0), tl.program_id(1)
        _, lines, real = module.query_rows(r, 1, head, heads, 1, 1)
        query, seen = module.load_lines(q, lines, real, dim, dim), case.lengths[int(r)] - 1
        _, total, acc = module.walk(
            query, kv, tables + r * case.tables.shape[1], tl.zeros([1], tl.int32) + seen, 0,
            seen // tile + 1, head // group, dim**-0.5, NO_WINDOW,
            kv_heads, block_size, tile, dim, dim, 1,
        )  # fmt: skip
        places = out + lines[:, None] * dim + tl.arange(0, dim)[None, :]
        tl.store(places, acc / total[:, None], mask=real[:, None])

    return Done(out, (twin.launch(kernel, (n, heads), case.q, case.kv, case.tables, out),))


def gather(module, case: Paged, tile: int = 16) -> tuple[Paged, Trace]:
    """A copy of every sequence, block after block in its order, as a tensor program makes it."""
    n, max_blocks = case.tables.shape
    kv_heads, size, dim = case.kv.shape[2:]
    copy = np.zeros((n * max_blocks, *case.kv.shape[1:]), np.float32)
    in_order, tl = np.arange(n * max_blocks).reshape(n, max_blocks), module.tl

    def kernel(kv, tables, copy):
        r, head = tl.program_id(0), tl.program_id(1)
        for begin in range(0, case.lengths[int(r)], tile):
            places = begin + tl.arange(0, tile)
            there = places < case.lengths[int(r)]
            pair = module.load_tile(
                kv, tables + r * max_blocks, places, there, head, kv_heads, size, dim, dim
            )
            blocks = r * max_blocks + places // size
            for kind, numbers in enumerate(pair):
                lines = ((blocks * 2 + kind) * kv_heads + head) * size + places % size
                at = copy + lines[:, None] * dim + tl.arange(0, dim)[None, :]
                tl.store(at, numbers, mask=there[:, None])

    trace = twin.launch(kernel, (n, kv_heads), case.kv, case.tables, copy)
    return replace(case, kv=copy, tables=in_order), trace


@dataclass(frozen=True)
class Way:
    """Bytes that one way to decode has moved, and the least there are; counted, not timed."""

    name: str
    kv: int  # keys and values where they lie
    copies: int  # of a gathered copy: written, then read
    parts: int  # of a split: written, then read
    ends: int  # queries and results
    least: int
    error: float  # the largest difference to the softmax in float64

    @property
    def factor(self) -> float:
        return (self.kv + self.copies + self.parts + self.ends) / self.least


def ways(module, case: Paged, splits: int = 4) -> list[Way]:
    """Four ways, counted on the twin. Block tables are left out: they are 8 bytes a block."""
    copied, copying = gather(module, case)
    after = decode(module, copied)
    copy = copying.bytes_moved("copy", "write") + after.moved("kv")
    done = {
        "gather, then attend": (after, copying.bytes_moved("kv"), copy),
        "a program a query head": (decode_by_heads(module, case), None, 0),
        "a program a kv head": (decode(module, case), None, 0),
        f"the same in {splits} parts": (decode(module, case, splits), None, 0),
    }
    wanted, found = definition(case), []
    for name, (run, kv, copies) in done.items():
        found.append(
            Way(
                name,
                run.moved("kv") if kv is None else kv,
                copies,
                run.moved("maxima", "totals", "parts"),
                run.moved("q", "out"),
                case.least_bytes,
                float(abs(run.out - wanted).max()),
            )
        )
    return found


@dataclass(frozen=True)
class Split:
    """One sequence on a card with so many multiprocessors, in one part or several; modelled."""

    context: int
    splits: int
    programs: int
    seconds: float


def split_model(
    context: int, splits: int, bandwidth: float, processors: int, kv_heads=8, group=4,
    head_dim=128, itemsize=2,
) -> Split:  # fmt: skip
    """Seconds of one layer's attention of one new token: bytes / bandwidth.

    Modelled: every multiprocessor draws an equal share of the card's bandwidth, and one that has
    no program draws none. (Alone, one draws somewhat more than its share.) A split writes and
    reads its parts once more, in float32.
    """
    heads, programs = kv_heads * group, kv_heads * splits
    moved = context * 2 * kv_heads * head_dim * itemsize + 2 * heads * head_dim * itemsize
    if splits > 1:
        moved += 2 * heads * splits * (head_dim + 2) * 4
    share = min(programs, processors) / processors
    return Split(context, splits, programs, moved / (bandwidth * share))


def reads(trace: Trace, case: Paged) -> dict[tuple, dict[int, int]]:
    """How many slots of each block each program has read: {program: {block: slots}}."""
    per_block, dim = case.kv[0].size, case.kv.shape[4]
    size, found = case.kv.shape[3], {}
    for access in trace.of("kv"):
        lines = np.unique(access.offsets // dim)
        mine = found.setdefault(access.program, {})
        for block in np.unique(lines * dim // per_block).tolist():
            slots = {*(lines[lines * dim // per_block == block] % size).tolist()}
            mine[block] = mine.get(block, set()) | slots
    return {p: {b: len(slots) for b, slots in blocks.items()} for p, blocks in found.items()}


def attention_by(module, tile: int = 16) -> Callable:
    """A class for `Decoder.attention` that runs a module's kernels on the twin, in any model."""

    class TwinAttention:
        def __init__(self, batch):
            self.batch = batch
            self.firsts = [(r, 0) for r in range(len(batch.query_lens))]

        def __call__(self, q, kv):
            import torch

            batch, (heads, dim), kv_heads = self.batch, q.shape[1:], kv.shape[2]
            group, numbers = heads // kv_heads, kv.detach().cpu().float().numpy()
            longest, out = max(batch.query_lens), np.zeros(q.shape, np.float32)
            requests, firsts = np.array(self.firsts, np.int64).T.copy()
            ints = (batch.block_tables, batch.query_start, batch.positions)
            module.prefill_kernel[len(requests), kv_heads](
                q.detach().cpu().float().contiguous().numpy(), np.ascontiguousarray(numbers),
                *(np.ascontiguousarray(x.cpu().numpy()) for x in ints), requests, firsts, out,
                batch.block_tables.shape[1], dim**-0.5, NO_WINDOW, KV_HEADS=kv_heads, GROUP=group,
                ROWS=power_of_two(longest * group), HEAD_DIM=dim, DIM=power_of_two(dim),
                BLOCK_SIZE=batch.block_size, TILE=tile,
            )  # fmt: skip
            return torch.from_numpy(out).to(q.device, q.dtype)

    return TwinAttention
