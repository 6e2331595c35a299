"""Chooses the sizes of the kernels of `paged` and starts them."""

from dataclasses import dataclass
from functools import cache

import torch

from labkit.kernels.gpu import paged

LEAST_ROWS = 16  # tensor cores work on so many at a time
TILE_NUMBERS = {2: 8192, 4: 2048}  # in the keys of a tile, by their bytes: more would spill
MOST_SPLITS = 64
PROGRAMS_PER_PROCESSOR = 4  # of a GPU's multiprocessors, so that there is work while some wait
NO_WINDOW = 2**30
INTERPRETER_PROCESSORS = 4  # what a CPU counts as: few, so that tests see splits and one part


@dataclass(frozen=True)
class Sizes:
    """What a kernel is compiled for, beside the shapes: see `paged`."""

    tile: int  # tokens at a time
    rows: int
    num_warps: int
    num_stages: int


def power_of_two(number: int) -> int:
    """The smallest power of two that is not below `number`."""
    return 1 << (number - 1).bit_length()


def decode_sizes(itemsize: int, head_dim: int, group: int) -> Sizes:
    """For keys of so many bytes a number, and `group` query heads for each kv head."""
    tile = TILE_NUMBERS[itemsize] // power_of_two(head_dim)
    rows = max(power_of_two(group), LEAST_ROWS)
    return Sizes(min(max(tile, 16), 64), rows, num_warps=4, num_stages=2)


def prefill_sizes(itemsize: int, head_dim: int, group: int) -> Sizes:
    """The same for several queries a request: what fits into registers without spilling."""
    if itemsize == 2:
        return Sizes(32, max(power_of_two(group), 64), num_warps=4, num_stages=2)
    return Sizes(32, max(power_of_two(group), 32), num_warps=4, num_stages=3)


@cache
def processors(device: torch.device) -> int:
    """How many multiprocessors a device has."""
    if device.type != "cuda":
        return INTERPRETER_PROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def splits_for(programs: int, tiles: int, processors: int) -> int:
    """In how many parts a context of up to `tiles` tiles is cut, a power of two.

    As many as keep every multiprocessor busy when there are few `programs` without; but a part
    has four tiles or more, since each costs a merge.
    """
    wanted = PROGRAMS_PER_PROCESSOR * processors // programs
    most = min(wanted, tiles // 4, MOST_SPLITS)
    return 1 << (most.bit_length() - 1) if most > 1 else 1


class TritonAttention:
    """Attention of one step, called once a layer: `reference.PagedAttention` on a GPU.

    Requests with one new token go to the decode kernel, the others to the prefill kernel. Nothing
    of the decode part depends on a length, only on shapes, so it can be part of a CUDA graph.
    `window` bounds how many tokens each query sees, itself included; None: all before it.
    `kernels` is a module like `paged`, with a learner's own parts in it, say.
    """

    def __init__(self, batch, window: int | None = None, kernels=paged):
        self.kernels = kernels
        self.batch, self.window = batch, window or NO_WINDOW
        self.decoding = [r for r, length in enumerate(batch.query_lens) if length == 1]
        self.chunks = [r for r, length in enumerate(batch.query_lens) if length > 1]
        if self.chunks:
            self.requests = self.on_device(self.decoding)
            self.tokens = batch.query_start[self.requests]
        else:  # nothing is copied from the host: a CUDA graph that is recorded can't have it
            self.requests = torch.arange(len(self.decoding), device=batch.positions.device)
            self.tokens = self.requests
        self.scratch = self.tiles = None  # made by the first layer, used by all

    def on_device(self, numbers) -> torch.Tensor:
        return torch.tensor(numbers, dtype=torch.int64, device=self.batch.positions.device)

    def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """`q` `[T, heads, head_dim]`, `kv` `[num_blocks, 2, kv_heads, block_size, head_dim]`, of
        one dtype; returns a tensor like `q`."""
        q, out = q.contiguous(), torch.empty_like(q, memory_format=torch.contiguous_format)
        if self.decoding:
            self.decode(q, kv, out)
        if self.chunks:
            self.prefill(q, kv, out)
        return out

    def decode(self, q: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        """Fills the rows of `out` that belong to requests with one new token."""
        heads, head_dim, kv_heads = q.shape[1], q.shape[2], kv.shape[2]
        batch, n, group = self.batch, len(self.decoding), heads // kv_heads
        sizes = decode_sizes(kv.itemsize, head_dim, group)
        tiles = -(-batch.block_tables.shape[1] * batch.block_size // sizes.tile)
        splits = splits_for(n * kv_heads, tiles, processors(q.device))
        if self.scratch is None:
            per_part = torch.empty(2, n, heads, splits, device=q.device)
            parts = torch.empty(n, heads, splits, head_dim if splits > 1 else 0, device=q.device)
            self.scratch = (*per_part, parts)
        dim = power_of_two(head_dim)
        self.kernels.decode_kernel[n, kv_heads, splits](
            q, kv, self.requests, self.tokens, batch.positions, batch.block_tables, out,
            *self.scratch, batch.block_tables.stride(0), head_dim**-0.5, self.window,
            KV_HEADS=kv_heads, GROUP=group, ROWS=sizes.rows, HEAD_DIM=head_dim, DIM=dim,
            BLOCK_SIZE=batch.block_size, TILE=sizes.tile, SPLITS=splits,
            num_warps=sizes.num_warps, num_stages=sizes.num_stages,
        )  # fmt: skip
        if splits > 1:
            self.kernels.merge_kernel[n, heads](
                self.tokens, *self.scratch, out, HEADS=heads, HEAD_DIM=head_dim, DIM=dim,
                SPLITS=splits, num_warps=4,
            )  # fmt: skip

    def prefill(self, q: torch.Tensor, kv: torch.Tensor, out: torch.Tensor) -> None:
        """Fills the rows of `out` that belong to requests with several new tokens."""
        heads, head_dim, kv_heads = q.shape[1], q.shape[2], kv.shape[2]
        batch, group = self.batch, heads // kv_heads
        sizes = prefill_sizes(kv.itemsize, head_dim, group)
        if self.tiles is None:
            step = sizes.rows // group  # queries of a program
            lengths = [(r, batch.query_lens[r]) for r in self.chunks]
            tiles = [(r, first) for r, length in lengths for first in range(0, length, step)]
            self.tiles = self.on_device(tiles).t().contiguous()
        self.kernels.prefill_kernel[self.tiles.shape[1], kv_heads](
            q, kv, batch.block_tables, batch.query_start, batch.positions, *self.tiles, out,
            batch.block_tables.stride(0), head_dim**-0.5, self.window,
            KV_HEADS=kv_heads, GROUP=group, ROWS=sizes.rows, HEAD_DIM=head_dim,
            DIM=power_of_two(head_dim), BLOCK_SIZE=batch.block_size, TILE=sizes.tile,
            num_warps=sizes.num_warps, num_stages=sizes.num_stages,
        )  # fmt: skip


def write(kv: torch.Tensor, slot_mapping: torch.Tensor, new: torch.Tensor) -> None:
    """Stores `new` keys and values `[T, 2 * kv_heads, head_dim]` of one layer in their slots."""
    kv_heads, block_size, head_dim = kv.shape[2:]
    width = power_of_two(2 * kv_heads * head_dim)
    paged.write_kernel[len(slot_mapping),](
        new.to(kv.dtype).contiguous(), slot_mapping, kv,
        KV_HEADS=kv_heads, HEAD_DIM=head_dim, BLOCK_SIZE=block_size, WIDTH=width, num_warps=4,
    )  # fmt: skip
