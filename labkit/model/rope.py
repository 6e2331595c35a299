"""Rotary position embedding: keys and queries are turned by an angle that grows with position.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021). The numbers of
a head are taken in pairs, a pair as one complex number, and turned by e^(i·position·frequency).
"""

import math

import torch

from labkit.model.config import DecoderConfig


def frequencies(config: DecoderConfig) -> torch.Tensor:
    """How far each pair turns from one position to the next, in radians: `[head_dim / 2]`."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    plain = 1.0 / (config.rope_theta**exponents)
    scaling = config.rope_scaling
    if scaling.get("rope_type") == "linear":
        return plain / scaling["factor"]
    if scaling.get("rope_type") == "llama3":
        return stretch_llama3(plain, scaling)
    return plain


def stretch_llama3(plain: torch.Tensor, scaling) -> torch.Tensor:
    """Llama 3.1's way to a longer context: slow turns become `factor` times slower still.

    Waves shorter than the old context / `high_freq_factor` stay, those longer than the old
    context / `low_freq_factor` are stretched, and between the two it goes over smoothly.
    """
    factor, old_context = scaling["factor"], scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    wavelengths = 2 * math.pi / plain
    share = ((old_context / wavelengths - low) / (high - low)).clamp(0, 1)
    return (1 - share) * plain / factor + share * plain


def rotations(config: DecoderConfig, num_positions: int) -> torch.Tensor:
    """e^(i·position·frequency) for every position: complex64 `[num_positions, head_dim / 2]`."""
    positions = torch.arange(num_positions, dtype=torch.float32)
    angles = torch.outer(positions, frequencies(config))
    return torch.polar(torch.ones_like(angles), angles)


def rotated(heads: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Queries or keys `[T, heads, head_dim]` (float32) turned by `turns` `[T, 1, head_dim / 2]`.

    A pair is (2i, 2i + 1) here; `paired` puts the rows of a weight in that order.
    """
    pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turns).flatten(-2)


def paired(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """The rows of a q or k projection (or bias, or norm) with each pair side by side.

    Checkpoints in transformers' format keep a pair at (i, i + head_dim / 2). Which order is
    used makes no difference to q·k, as long as both have the same.
    """
    heads = weight.unflatten(0, (-1, 2, head_dim // 2))  # [heads, half, pair, ...]
    return heads.transpose(1, 2).flatten(0, 2)
