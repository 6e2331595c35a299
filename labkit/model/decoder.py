"""The Llama-family decoder over a flat batch: tokens in, logits out, keys and values kept.

One class runs Llama (Touvron et al., 2023), Mistral, Qwen2 and Qwen3 checkpoints. They differ in
sizes, in where a bias stands and in Qwen3's norm of each query and key.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from labkit.kernels import attention_for
from labkit.model.config import DecoderConfig
from labkit.model.flat_batch import FlatBatch
from labkit.model.kv_cache import KVCache
from labkit.model.linear import Int8Linear, Linear, PackedLinear, can_pack
from labkit.model.rope import paired, rotate_, rotations

INT8_PARTS = frozenset({"qkv", "o", "gate_up", "down", "head"})


class Layer:
    """The weights of one layer: four products and the norms before them."""

    def __init__(self, config: DecoderConfig, read: Callable, product: Callable):
        d = config.head_dim

        def bias(name: str) -> torch.Tensor | None:
            return read(f"{name}.bias", optional=True)

        attn, mlp = "self_attn", "mlp"
        q, k, v = (read(f"{attn}.{x}_proj.weight") for x in "qkv")
        biases = [bias(f"{attn}.{x}_proj") for x in "qkv"]
        if biases[0] is not None:
            biases = [paired(biases[0], d), paired(biases[1], d), biases[2]]
        self.attn_norm = read("input_layernorm.weight")
        self.qkv = product(
            "qkv",
            torch.cat([paired(q, d), paired(k, d), v]),
            torch.cat(biases) if biases[0] is not None else None,
        )
        self.q_norm = self.k_norm = None
        if config.qk_norm:
            self.q_norm = paired(read(f"{attn}.q_norm.weight"), d)
            self.k_norm = paired(read(f"{attn}.k_norm.weight"), d)
        self.o = product("o", read(f"{attn}.o_proj.weight"), bias(f"{attn}.o_proj"))
        self.mlp_norm = read("post_attention_layernorm.weight")
        gate_bias, up_bias = bias(f"{mlp}.gate_proj"), bias(f"{mlp}.up_proj")
        self.gate_up = product(
            "gate_up",
            torch.cat([read(f"{mlp}.gate_proj.weight"), read(f"{mlp}.up_proj.weight")]),
            torch.cat([gate_bias, up_bias]) if gate_bias is not None else None,
        )
        self.down = product("down", read(f"{mlp}.down_proj.weight"), bias(f"{mlp}.down_proj"))


class Decoder:
    """A model in memory: `decoder(batch, cache)` → logits.

    `tensors` gives the weight of a name (`model.layers.0.mlp.up_proj.weight`), as a checkpoint
    of transformers has them, or None. `int8` names the products computed in 8-bit integers.
    """

    def __init__(
        self,
        config: DecoderConfig,
        tensors: Callable[[str], torch.Tensor | None],
        *,
        dtype: torch.dtype = torch.float32,
        device="cpu",
        int8: frozenset[str] = frozenset(),
    ):
        self.config, self.dtype, self.device = config, dtype, torch.device(device)
        plain = PackedLinear if can_pack(dtype, device) else Linear

        def read(name: str, optional: bool = False) -> torch.Tensor | None:
            tensor = tensors(name)
            if tensor is not None:
                return tensor.detach().to(device=self.device, dtype=dtype)
            if optional:
                return None
            raise KeyError(f"the checkpoint has no tensor {name}")

        def product(part: str, weight: torch.Tensor, bias: torch.Tensor | None):
            return (Int8Linear if part in int8 else plain)(weight, bias)

        with torch.inference_mode():
            self.embedding = read("model.embed_tokens.weight")
            self.layers = [
                Layer(config, lambda name, optional=False, i=i: read(
                    f"model.layers.{i}.{name}", optional), product)
                for i in range(config.num_layers)
            ]  # fmt: skip
            self.norm = read("model.norm.weight")
            head = self.embedding if config.tied_head else read("lm_head.weight")
            self.head = product("head", head, None)
            self.turns = rotations(config, config.max_position).to(self.device)

    @torch.inference_mode()
    def __call__(self, batch: FlatBatch, cache: KVCache) -> torch.Tensor:
        """Logits `[R_sampled, vocab]` (float32) after the tokens `batch.logits_rows`.

        Keys and values of all T tokens are written to `cache` on the way.
        """
        x = F.embedding(batch.token_ids, self.embedding)  # [T, hidden]
        turns = self.turns[batch.positions].unsqueeze(1)  # [T, 1, head_dim / 2]
        num_slots = cache.num_blocks * cache.block_size
        attention = attention_for(batch, self.config.num_heads, num_slots)
        for i, layer in enumerate(self.layers):
            qkv = self.queries_keys_values(layer, x, turns)
            heads, keys_values = qkv.tensor_split((self.config.num_heads,), dim=1)
            cache.write(i, batch.slot_mapping, keys_values.flatten(1))
            attended = attention(heads.to(cache.dtype), cache.layers[i])
            x = layer.o(attended.flatten(1).to(self.dtype), add=x)
            x = layer.down(self.gated(layer, x), add=x)
        return self.head(self.normed(x[batch.logits_rows], self.norm)).float()

    def queries_keys_values(self, layer: Layer, x: torch.Tensor, turns) -> torch.Tensor:
        """`[T, heads + 2 * kv_heads, head_dim]` (float32): q and k turned to their positions."""
        config = self.config
        qkv = layer.qkv(self.normed(x, layer.attn_norm)).float().unflatten(1, (-1, config.head_dim))
        turned = qkv[:, : config.num_heads + config.num_kv_heads]
        if layer.q_norm is not None:
            q, k = turned.tensor_split((config.num_heads,), dim=1)
            q.copy_(self.normed(q, layer.q_norm))
            k.copy_(self.normed(k, layer.k_norm))
        rotate_(turned, turns)
        return qkv

    def gated(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up, `[T, intermediate]`: what the MLP's last product reads."""
        gate, up = layer.gate_up(self.normed(x, layer.mlp_norm)).chunk(2, dim=1)
        return F.silu(gate).mul_(up)

    def normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """x divided by the root of its mean square, times the weight (Zhang & Sennrich, 2019)."""
        return F.rms_norm(x, weight.shape, weight, self.config.rms_norm_eps)
