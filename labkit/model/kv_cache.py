"""The memory for keys and values, in blocks."""

import torch

from labkit.model.config import DecoderConfig


def cache_dtype(dtype: torch.dtype, device) -> torch.dtype:
    """The precision of keys and values for a model of `dtype`.

    On a CPU float32: torch has the product of a query with scattered keys (`sampled_addmm`) in
    no other.
    """
    return torch.float32 if torch.device(device).type == "cpu" else dtype


def bytes_per_block(config: DecoderConfig, block_size: int, dtype: torch.dtype, device) -> int:
    """What one block costs over all layers."""
    return config.kv_numbers_per_token * block_size * cache_dtype(dtype, device).itemsize


class KVCache:
    """Room for `num_blocks * block_size` tokens in every layer.

    `layers[i]` is `[num_blocks, block_size, 2, kv_heads, head_dim]`: for each slot the key and
    then the value, so that a token's new keys and values are written in one go.
    """

    def __init__(self, config: DecoderConfig, num_blocks: int, block_size: int, dtype, device):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.dtype = cache_dtype(dtype, device)
        shape = (num_blocks, block_size, 2, config.num_kv_heads, config.head_dim)
        self.layers = [
            torch.zeros(shape, dtype=self.dtype, device=device) for _ in range(config.num_layers)
        ]

    @property
    def num_bytes(self) -> int:
        return sum(layer.numel() * layer.element_size() for layer in self.layers)

    def write(self, layer: int, slot_mapping: torch.Tensor, kv: torch.Tensor) -> None:
        """Stores keys and values `[T, 2 * kv_heads * head_dim]` in slots `[T]` of one layer."""
        slots = self.layers[layer].view(self.num_blocks * self.block_size, -1)
        slots.index_copy_(0, slot_mapping, kv.to(self.dtype))

    def copy_blocks(self, pairs: list[tuple[int, int]]) -> None:
        """Copies whole blocks, (from, to), one pair after the other."""
        for source, target in pairs:
            for layer in self.layers:
                layer[target] = layer[source]
