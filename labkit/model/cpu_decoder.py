"""The decoder on a CPU: the steps of `Decoder`, with all between the products in compiled loops.

Read `decoder.py` first: there it is one torch call per operation, as a GPU likes it.
"""

import numba
import numpy as np
import torch
import torch.nn.functional as F

from labkit.kernels import loops
from labkit.kernels.cpu import CPUAttention
from labkit.kernels.decode_step import decode_step
from labkit.model.decoder import Decoder
from labkit.model.flat_batch import FlatBatch
from labkit.model.kv_cache import KVCache
from labkit.model.linear import Int8Linear, MKLLinear, Operand

PARTS = ("qkv", "o", "gate_up", "down")
NONE = np.empty(0, np.float32)


def array(tensor: torch.Tensor | None) -> np.ndarray:
    """A weight for the loops, in float32; no numbers for None."""
    return NONE if tensor is None else tensor.float().numpy()


class CPUDecoder(Decoder):
    """In float32 between the products, whatever the precision of these."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.eps = np.float32(self.config.rms_norm_eps)
        self.q_norms = np.stack([array(layer.q_norm) for layer in self.layers])
        self.k_norms = np.stack([array(layer.k_norm) for layer in self.layers])
        self.weights = self.biases = None  # for `decode_step`, where it can be had
        if isinstance(self.layers[0].qkv, MKLLinear):
            products = [[getattr(layer, part) for part in PARTS] for layer in self.layers]
            self.weights = np.array([[p.weight.address for p in row] for row in products], np.uintp)
            self.biases = tuple(
                np.stack([p.bias_array for p in column]) for column in zip(*products, strict=True)
            )

    @torch.inference_mode()
    def __call__(self, batch: FlatBatch, cache: KVCache) -> torch.Tensor:
        """Logits `[R_sampled, vocab]` (float32), as `Decoder` gives them."""
        numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))
        x = F.embedding(batch.token_ids, self.embedding).float().numpy()  # [T, hidden]
        step = Step(self, batch)
        if self.weights is not None and not step.attention.chunks:
            self.all_layers(x, step, cache)
        else:
            self.layer_by_layer(x, step, cache)
        return self.head(step.h.values[batch.logits_rows]).float()

    def all_layers(self, x: np.ndarray, step: "Step", cache: KVCache) -> None:
        """The layers in one call. `step.h` gets their output, normalized."""
        qkv = np.empty((len(x), self.layers[0].qkv.weight.outputs), np.float32)
        gates = np.empty((len(x), self.layers[0].gate_up.weight.outputs), np.float32)
        h, q, attended = step.h.arrays[0], step.q.numpy(), step.attended_heads.numpy()
        buffers = (h, qkv, q, attended, gates, step.gated.arrays, step.h.scale)
        norms = (self.q_norms, self.k_norms, self.eps)
        decode_step(x, self.weights, self.biases, norms, step.batch, cache.data.numpy(), buffers)
        loops.normalize(x, self.eps, h)

    def layer_by_layer(self, x: np.ndarray, step: "Step", cache: KVCache) -> None:
        """The same for any kind of product, and for chunks, too."""
        h, gated, attended, attention = step.h, step.gated, step.attended, step.attention
        q, heads_of = step.q.numpy(), (len(x), -1, self.config.head_dim)
        raw, scale = np.zeros_like(x), h.scale
        for i, (layer, kv) in enumerate(zip(self.layers, cache.data.numpy(), strict=True)):
            loops.add_and_normalize(x, raw, scale, self.eps, h.arrays)
            raw, scale = layer.qkv.rows(h)
            loops.turn_keep_attend(
                (raw.reshape(heads_of), scale), (self.q_norms[i], self.k_norms[i], self.eps),
                step.batch, kv, q, step.attended_heads.numpy(),
            )  # fmt: skip
            attention.attend_chunks(step.q, cache.layers[i], step.attended_heads)
            loops.finish(attended.arrays)
            raw, scale = layer.o.rows(attended)
            loops.add_and_normalize(x, raw, scale, self.eps, h.arrays)
            loops.gate(*layer.gate_up.rows(h), gated.arrays)
            raw, scale = layer.down.rows(gated)
        loops.add_and_normalize(x, raw, scale, self.eps, h.arrays)


class Step:
    """What one step needs besides the weights: memory, used again by each layer."""

    def __init__(self, decoder: CPUDecoder, batch: FlatBatch):
        config, count = decoder.config, len(batch.token_ids)
        self.attention = CPUAttention(batch)
        turns = torch.view_as_real(decoder.turns[batch.positions]).numpy()
        self.batch = (turns, batch.slot_mapping.numpy(), *self.attention.decoding)
        integers = isinstance(decoder.layers[0].qkv, Int8Linear)
        self.h = Operand((count, config.hidden_size), integers)
        self.gated = Operand((count, config.intermediate_size), integers)
        self.attended = Operand((count, config.num_heads * config.head_dim), integers)
        self.attended_heads = self.attended.values.unflatten(1, (-1, config.head_dim))
        self.q = torch.empty_like(self.attended_heads)
