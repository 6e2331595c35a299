"""Attention over keys and values in blocks, from tensors to tensors. Imports no other room.

`attention_for` chooses by device. `reference` is what the others are tested against.
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
