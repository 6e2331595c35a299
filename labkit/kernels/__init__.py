"""What is computed on tensors, in the fastest way that a device has. Imports no other room.

Paged attention: `reference` says what it is, and `attention_for` chooses by device. For a CPU:
`loops`, all that is not a product; `mkl`, products with packed weights; `decode_step`, both of
them for all layers.
"""


def attention_for(batch):
    """A callable `(q, kv) -> out` for one step, the same for every layer.

    `batch` is a `FlatBatch`; `q` is `[T, heads, head_dim]`, `kv` one layer of the cache,
    `[num_blocks, 2, kv_heads, block_size, head_dim]`, which holds this step's keys and values
    already; `out` is like `q`. What depends on the batch alone is prepared here, once a step.
    """
    from labkit.kernels import cpu, reference

    if batch.token_ids.device.type == "cpu":
        return cpu.CPUAttention(batch)
    return reference.GatheredAttention(batch)
