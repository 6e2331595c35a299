"""The decoder on a CPU: the steps of `Decoder`, with all between the products in compiled loops.

Read `decoder.py` first: there it is one torch call per operation, as a GPU likes it.
"""

import numpy as np
import torch
import torch.nn.functional as F

from labkit.kernels import attention, loops
from labkit.kernels.cpu import CPUAttention
from labkit.kernels.decode_step import decode_step
from labkit.model.decoder import Decoder
from labkit.model.flat_batch import FlatBatch, Span
from labkit.model.kv_cache import KVCache
from labkit.model.linear import Int8Linear, Operand, PanelLinear

PARTS = ("qkv", "o", "gate_up", "down")
NONE = np.empty(0, np.float32)
MANY = 10**9


def array(tensor: torch.Tensor | None) -> np.ndarray:
    """A weight for the loops, in float32; no numbers for None."""
    return NONE if tensor is None else tensor.float().numpy()


class CPUDecoder(Decoder):
    """In float32 between the products, whatever the precision of these.

    Raises ValueError for an `int8` that names some products of a layer only, and else as `Decoder`.
    """

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.eps = np.float32(self.config.rms_norm_eps)
        self.q_norms = np.stack([array(layer.q_norm) for layer in self.layers])
        self.k_norms = np.stack([array(layer.k_norm) for layer in self.layers])
        products = [[getattr(layer, part) for layer in self.layers] for part in PARTS]
        kinds = {isinstance(column[0], Int8Linear) for column in products}
        if len(kinds) > 1:  # what a product gives is scaled by what it has read
            raise ValueError(f"int8 must name all of {', '.join(PARTS)}, or none of them")
        (self.in_integers,) = kinds
        stacks = [stacked(column) for column in products]
        self.products = tuple(stacks) if all(stacks) else None  # for `decode_step`
        self.most_rows = Int8Linear.FEW if self.in_integers else MANY

    def prepare(self) -> None:
        """Has the loops compiled, or read from disk where they were before, ahead of a request."""
        cache = KVCache(self.config, 1, 4, self.dtype, "cpu")
        for token_ids, start in ([0, 0], 0), ([0], 2):  # a chunk, and one that follows it
            self(FlatBatch.build([Span(token_ids, start, [0])], 4), cache)

    @torch.inference_mode()
    def __call__(self, batch: FlatBatch, cache: KVCache) -> torch.Tensor:
        """Logits `[R_sampled, vocab]` (float32), as `Decoder` gives them."""
        loops.share_threads()
        x = F.embedding(batch.token_ids, self.embedding).float().numpy()  # [T, hidden]
        step = Step(self, batch)
        loops.normalize(x, self.eps, step.h.arrays[0])
        loops.finish(step.h.arrays)
        together = self.products and not step.attention.chunks and len(x) <= self.most_rows
        (self.all_layers if together else self.layer_by_layer)(x, step, cache)
        return self.head(step.h.values[batch.logits_rows]).float()

    def all_layers(self, x: np.ndarray, step: "Step", cache: KVCache) -> None:
        """The layers in one call. `step.h` has their input and then their output, normalized."""
        config = self.config
        outputs = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        heads = np.empty((len(x), outputs), np.float32)
        gates = np.empty((len(x), 2 * config.intermediate_size), np.float32)
        results = (step.q.numpy(), heads, gates, np.empty_like(x))
        operands = (step.h.arrays, step.attended.arrays, step.gated.arrays)
        norms = (self.q_norms, self.k_norms, self.eps)
        decode_step(x, self.products, norms, step.batch, cache.data.numpy(), operands, results)

    def layer_by_layer(self, x: np.ndarray, step: "Step", cache: KVCache) -> None:
        """The same for any kind of product, and for chunks, too."""
        h, gated, attended = step.h, step.gated, step.attended
        q, per_head = step.q.numpy(), (len(x), -1, self.config.head_dim)
        for i, (layer, kv) in enumerate(zip(self.layers, cache.data.numpy(), strict=True)):
            raw = (layer.qkv.rows(h).reshape(per_head), h.scale)
            norms = (self.q_norms[i], self.k_norms[i], self.eps)
            attention.turn_keep_attend(raw, norms, step.batch, kv, q, step.attended_heads.numpy())
            step.attention.attend_chunks(step.q, cache.layers[i], step.attended_heads)
            loops.finish(attended.arrays)
            added = layer.o.rows(attended)
            loops.add_and_normalize(x, added, attended.scale, self.eps, h.arrays)
            loops.gate(layer.gate_up.rows(h), h.scale, gated.arrays)
            added = layer.down.rows(gated)
            loops.add_and_normalize(x, added, gated.scale, self.eps, h.arrays)


def stacked(products: list) -> tuple | None:
    """One product of all layers, as `decode_step` takes it; None for kinds that it doesn't know.

    A layer keeps a view of its integers in the stack.
    """
    if all(isinstance(product, PanelLinear) for product in products):
        addresses = np.array([product.weight.address for product in products])
        return addresses, np.stack([product.weight.bias for product in products])
    if all(isinstance(product, Int8Linear) and product.arrays for product in products):
        stacks = tuple(map(np.stack, zip(*(product.arrays for product in products), strict=True)))
        for i, product in enumerate(products):
            product.arrays = tuple(stack[i] for stack in stacks)
        return stacks
    return None


class Step:
    """What one step needs besides the weights: memory, used again by each layer."""

    def __init__(self, decoder: CPUDecoder, batch: FlatBatch):
        config, count = decoder.config, len(batch.token_ids)
        self.attention = CPUAttention(batch)
        turns = torch.view_as_real(decoder.turns[batch.positions]).numpy()
        self.batch = (turns, batch.slot_mapping.numpy(), *self.attention.decoding)
        integers = decoder.in_integers
        self.h = Operand((count, config.hidden_size), integers)
        self.gated = Operand((count, config.intermediate_size), integers)
        self.attended = Operand((count, config.num_heads * config.head_dim), integers)
        self.attended_heads = self.attended.values.unflatten(1, (-1, config.head_dim))
        self.q = torch.empty_like(self.attended_heads)
