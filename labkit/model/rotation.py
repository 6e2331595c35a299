"""Turns the residual stream of a decoder so that it can be written in 8 bits.

A few channels of the stream hold numbers a hundred times larger than the rest, and with them as
the measure little is left of the others. Multiplied by an orthogonal matrix, what stood in one
channel is spread over all. No output changes: what reads the stream turns it back, and its norm
is the same. Ashkboos et al., "QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs" (2024).
"""

from collections.abc import Callable

import torch

READERS = {  # the product that reads the stream: the norm before it
    "q_proj": "input_layernorm",
    "k_proj": "input_layernorm",
    "v_proj": "input_layernorm",
    "gate_proj": "post_attention_layernorm",
    "up_proj": "post_attention_layernorm",
}
WRITERS = ("o_proj", "down_proj")  # the products whose result is added to the stream
SEED = 2


def rotated(tensors: Callable, hidden_size: int, tied_head: bool) -> Callable:
    """The weights that `tensors(name)` gives, for a stream that is turned by a random rotation.

    The weight of each norm is multiplied into the products that follow, so that the norm itself
    treats all channels alike; it is then given as ones. The head is always given on its own,
    since it reads the stream after a norm and the embedding doesn't.
    """
    turn = rotation(hidden_size)

    def read(name: str) -> torch.Tensor | None:
        tensor = tensors("model.embed_tokens.weight" if is_tied_head(name) else name)
        if tensor is None:
            return None
        layer, _, rest = name.partition(".self_attn." if ".self_attn." in name else ".mlp.")
        part, _, kind = rest.partition(".")
        if name.endswith("layernorm.weight") or name == "model.norm.weight":
            return torch.ones_like(tensor)
        if name == "model.embed_tokens.weight":
            return tensor.float() @ turn
        if name == "lm_head.weight":
            return tensor.float() * tensors("model.norm.weight").float() @ turn
        if part in READERS and kind == "weight":
            return tensor.float() * tensors(f"{layer}.{READERS[part]}.weight").float() @ turn
        if part in WRITERS:
            return turn.t() @ tensor.float()
        return tensor

    def is_tied_head(name: str) -> bool:
        return tied_head and name == "lm_head.weight"

    return read


def rotation(size: int) -> torch.Tensor:
    """A random orthogonal matrix `[size, size]` (float32), the same one every time."""
    random = torch.Generator().manual_seed(SEED)
    matrix = torch.randn(size, size, generator=random, dtype=torch.float64)
    return torch.linalg.qr(matrix).Q.float()
