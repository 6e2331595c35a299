"""The memory for keys and values, in blocks."""

import time

import torch

from labkit.kernels import default_for
from labkit.kernels.large_pages import in_large_pages
from labkit.model.config import DecoderConfig


def cache_dtype(dtype: torch.dtype, device) -> torch.dtype:
    """The precision of keys and values for a model of `dtype`.

    On a CPU float32, which is what its loops compute in.
    """
    return torch.float32 if torch.device(device).type == "cpu" else dtype


def bytes_per_block(config: DecoderConfig, block_size: int, dtype: torch.dtype, device) -> int:
    """What one block costs over all layers."""
    return config.kv_numbers_per_token * block_size * cache_dtype(dtype, device).itemsize


class KVCache:
    """Room for `num_blocks * block_size` tokens in every layer.

    `data` is `[layers, num_blocks, 2, kv_heads, block_size, head_dim]`, and `layers[i]` its part
    for one layer: in each block the keys and then the values, head after head. Attention reads
    all keys of one head, so those of a block lie side by side. What is not written is never used:
    memory that no request has used yet costs nothing on most systems.
    """

    def __init__(self, config: DecoderConfig, num_blocks: int, block_size: int, dtype, device):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.dtype = cache_dtype(dtype, device)
        shape = (num_blocks, 2, config.num_kv_heads, block_size, config.head_dim)
        shape = (config.num_layers, *shape)
        if torch.device(device).type == "cpu":
            self.data = in_large_pages(shape)
        else:
            self.data = torch.empty(shape, dtype=self.dtype, device=device)
        self.layers = list(self.data)
        self.write_slots = None  # a kernel that finds the place of a slot by itself
        if self.data.is_cuda and default_for("cuda") == "triton":
            from labkit.kernels.gpu.launch import write

            self.write_slots = write

    @property
    def num_bytes(self) -> int:
        return self.data.nbytes

    def rows(self, slot_mapping: torch.Tensor) -> torch.Tensor:
        """Where new keys and values go, the same in every layer: `[T * 2 * kv_heads]`.

        A layer is one tall matrix with a row of `head_dim` for each (block, key or value, kv
        head, offset). `slot_mapping` `[T]` is block * block_size + offset; a kernel needs no more.
        """
        if self.write_slots:
            return slot_mapping
        per_block = self.layers[0].shape[1] * self.layers[0].shape[2]  # 2 * kv_heads
        blocks = slot_mapping.div(self.block_size, rounding_mode="floor").unsqueeze(1)
        heads = blocks * per_block + torch.arange(per_block, device=slot_mapping.device)
        return (heads * self.block_size + (slot_mapping % self.block_size).unsqueeze(1)).flatten()

    def write(self, layer: int, rows: torch.Tensor, kv: torch.Tensor) -> None:
        """Stores new keys and values `[T, 2 * kv_heads, head_dim]` of one layer at `rows`."""
        if self.write_slots:
            self.write_slots(self.layers[layer], rows, kv)
            return
        matrix = self.layers[layer].view(-1, kv.shape[-1])
        matrix.index_copy_(0, rows, kv.flatten(0, 1).to(self.dtype))

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """Copies whole blocks, (from, to), one pair after the other."""
        for source, target in pairs:
            for layer in self.layers:
                layer[target] = layer[source]

    def copy_to(self, other: "KVCache", pairs: list[tuple[int, int]]) -> None:
        """Copies whole blocks to another cache, (here, there), on whatever device that is."""
        if pairs:
            here, there = (torch.tensor(blocks) for blocks in zip(*pairs, strict=True))
            moved = self.data[:, here.to(self.data.device)].to(other.data.device)
            other.data[:, there.to(other.data.device)] = moved

    def bandwidth_to(self, other: "KVCache", num_blocks: int = 16) -> float:
        """Bytes per second of `copy_to`, measured: the better of two."""
        count, seconds = min(num_blocks, self.num_blocks, other.num_blocks), []
        for _ in range(2):
            begin = time.perf_counter()
            self.copy_to(other, [(i, i) for i in range(count)])
            if "cuda" in (self.data.device.type, other.data.device.type):
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begin)
        return count * self.num_bytes / self.num_blocks / min(seconds)
