"""What is computed on tensors, in the fastest way that a device has. Imports no other room.

Paged attention: `reference` says what it is, and `attention_for` chooses by device. For a CPU:
`panels` and `integers`, the products, with `tiles`, their innermost loop; `attention`, of one new
token, and `chunks`, of many; `loops`, all the rest; `decode_step`, all layers in one call.
"""

import hashlib
import os
from pathlib import Path

# Read by Numba when it is imported, which only modules of this room do. Torch's threads are
# OpenMP's, so Numba takes the same ones. What it compiles is kept in a folder for these sources:
# it would otherwise miss a change in a function that another file calls.
HERE = Path(__file__).parent
SOURCES = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(HERE.glob("*.py"))))
COMPILED = HERE / "__pycache__" / f"loops-{SOURCES.hexdigest()[:12]}"
os.environ.setdefault("NUMBA_THREADING_LAYER_PRIORITY", "omp tbb workqueue")
os.environ.setdefault("NUMBA_CACHE_DIR", str(COMPILED))


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
