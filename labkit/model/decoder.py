"""The Llama-family decoder over a flat batch: tokens in, logits out, keys and values kept.

One class runs Llama (Touvron et al., 2023), Mistral, Qwen2 and Qwen3 checkpoints. They differ in
sizes, in where a bias stands and in Qwen3's norm of each query and key.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from labkit.kernels import attention_for
from labkit.model.checkpoint import ModelError
from labkit.model.config import DecoderConfig
from labkit.model.flat_batch import FlatBatch
from labkit.model.kv_cache import KVCache
from labkit.model.linear import Int8Linear, linear_for
from labkit.model.rope import paired, rotated, rotations

INT8_PARTS = frozenset({"qkv", "o", "gate_up", "down", "head"})


class Layer:
    """The weights of one layer: four products.

    The weight of a norm is a factor of each input channel, so it is multiplied into the weight
    of the product that follows; what is left of the norm is a division.
    """

    def __init__(self, config: DecoderConfig, read: Callable, product: Callable):
        d = config.head_dim

        def joined(names: list[str], kind: str) -> torch.Tensor:
            """Several products of one input as one, a copy; q and k in the order of `rotated`."""
            tensors = [(name, read(f"{name}_proj.{kind}")) for name in names]
            return torch.cat([
                paired(t, d) if name.endswith((".q", ".k")) else t for name, t in tensors
            ])  # fmt: skip

        def part(name: str, sources: list[str], norm: str | None):
            weight = joined(sources, "weight")
            bias = joined(sources, "bias") if name in config.biased else None
            return product(name, weight.mul_(read(norm)) if norm else weight, bias)

        attn, mlp = "self_attn", "mlp"
        self.qkv = part("qkv", [f"{attn}.{x}" for x in "qkv"], "input_layernorm.weight")
        self.o = part("o", [f"{attn}.o"], None)
        self.gate_up = part(
            "gate_up", [f"{mlp}.gate", f"{mlp}.up"], "post_attention_layernorm.weight"
        )
        self.down = part("down", [f"{mlp}.down"], None)
        self.q_norm = self.k_norm = None
        if config.qk_norm:
            self.q_norm = paired(read(f"{attn}.q_norm.weight"), d)
            self.k_norm = paired(read(f"{attn}.k_norm.weight"), d)


class Decoder:
    """A model in memory: `decoder(batch, cache)` → logits.

    `tensors` gives the weight of a name (`model.layers.0.mlp.up_proj.weight`), as a checkpoint
    of transformers has them, or None. `int8` names the products computed in 8-bit integers.
    Raises ModelError that names a tensor which is missing or of another shape.
    """

    spare_blocks = 0  # blocks of the cache that an engine must not give out

    def __init__(
        self,
        config: DecoderConfig,
        tensors: Callable[[str], torch.Tensor | None],
        *,
        dtype: torch.dtype = torch.float32,
        device="cpu",
        int8: frozenset[str] = frozenset(),
        attention: Callable = attention_for,
    ):
        self.attention = attention  # from the batch of a step to its attention
        self.config, self.dtype, self.device = config, dtype, torch.device(device)
        plain = linear_for(dtype, device)

        def read(name: str) -> torch.Tensor:
            tensor, shape = tensors(name), config.shape_of(name)
            if tensor is None:
                raise ModelError(f"the checkpoint has no tensor {name}; fetch it again")
            if tensor.shape != shape:
                found = f"tensor {name} of the checkpoint is {list(tensor.shape)}"
                raise ModelError(f"{found}, by its config.json it must be {list(shape)}")
            return tensor.detach().to(device=self.device, dtype=dtype)

        def product(part: str, weight: torch.Tensor, bias: torch.Tensor | None):
            return (Int8Linear if part in int8 else plain)(weight, bias)

        with torch.inference_mode():
            self.embedding = read("model.embed_tokens.weight").clone()
            self.layers = [
                Layer(config, lambda name, i=i: read(f"model.layers.{i}.{name}"), product)
                for i in range(config.num_layers)
            ]
            head = self.embedding if config.tied_head else read("lm_head.weight")
            self.head = product("head", head * read("model.norm.weight"), None)
            self.turns = rotations(config, config.max_position).to(self.device)

    def prepare(self) -> None:
        """What would otherwise be done in the time of the first request: nothing here."""

    @torch.inference_mode()
    def __call__(self, batch: FlatBatch, cache: KVCache) -> torch.Tensor:
        """Logits `[R_sampled, vocab]` (float32) after the tokens `batch.logits_rows`.

        Keys and values of all T tokens are written to `cache` on the way.
        """
        x = F.embedding(batch.token_ids, self.embedding)  # [T, hidden]
        turns = self.turns[batch.positions].unsqueeze(1)  # [T, 1, head_dim / 2]
        rows, attention = cache.rows(batch.slot_mapping), self.attention(batch)
        for i, layer in enumerate(self.layers):
            q, kv = self.queries_keys_values(layer, x, turns)
            cache.write(i, rows, kv)
            attended = attention(q.to(cache.dtype), cache.layers[i])
            x = x + layer.o(attended.flatten(1))
            x = x + layer.down(self.gated(layer, x))
        return self.head(self.normalized(x[batch.logits_rows])).float()

    def queries_keys_values(self, layer: Layer, x: torch.Tensor, turns) -> tuple:
        """Queries `[T, heads, head_dim]`, keys and values `[T, 2 * kv_heads, head_dim]` (float32).

        Queries and keys are turned to their positions.
        """
        config = self.config
        qkv = layer.qkv(self.normalized(x)).float().unflatten(1, (-1, config.head_dim))
        q, k, v = qkv.split((config.num_heads, config.num_kv_heads, config.num_kv_heads), dim=1)
        if layer.q_norm is not None:
            q = F.rms_norm(q, q.shape[-1:], layer.q_norm.float(), config.rms_norm_eps)
            k = F.rms_norm(k, k.shape[-1:], layer.k_norm.float(), config.rms_norm_eps)
        return rotated(q, turns), torch.cat([rotated(k, turns), v], dim=1)

    def gated(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        """silu(gate) * up, `[T, intermediate]`: what the MLP's last product reads."""
        gate, up = layer.gate_up(self.normalized(x)).chunk(2, dim=1)
        return F.silu(gate) * up

    def normalized(self, x: torch.Tensor) -> torch.Tensor:
        """Each row divided by its root mean square: RMSNorm (Zhang & Sennrich, 2019)."""
        return F.rms_norm(x, x.shape[-1:], eps=self.config.rms_norm_eps)
