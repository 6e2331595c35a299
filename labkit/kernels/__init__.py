"""What is computed on tensors, in the fastest way that a device has. Imports no other room.

Paged attention: `reference` says what it is, and `attention_for` chooses by device. For a CPU:
`panels` and `integers`, the products, with `tiles`, their innermost loop; `attention`, of one new
token, and `chunks`, of many; `loops`, all the rest; `decode_step`, all layers in one call. For a
GPU: the folder `gpu`.
"""

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

# Read by Numba when it is imported, which only modules of this room do. Torch's threads are
# OpenMP's, so Numba takes the same ones. What it compiles is kept in a folder for these sources:
# it would otherwise miss a change in a function that another file calls.
HERE = Path(__file__).parent
SOURCES = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(HERE.glob("*.py"))))
COMPILED = HERE / "__pycache__" / f"loops-{SOURCES.hexdigest()[:12]}"
os.environ.setdefault("NUMBA_THREADING_LAYER_PRIORITY", "omp tbb workqueue")
os.environ.setdefault("NUMBA_CACHE_DIR", str(COMPILED))


IMPLEMENTATIONS = ("cpu", "triton", "gathered", "torch")


def default_for(device: str) -> str:
    """The fastest implementation on a kind of device, "cpu" or "cuda"."""
    if device == "cpu":
        return "cpu"
    return "triton" if find_spec("triton") else "gathered"


def implementation(device: str, name: str | None = None):
    """The class for paged attention on a kind of device, the fastest one if there is no `name`.

    One of IMPLEMENTATIONS: compiled loops ("cpu"), kernels in Triton, the kernel language, torch
    over blocks gathered side by side, or the textbook's, request by request ("torch"). ValueError
    for one that is unknown or can't run there.
    """
    name = name or default_for(device)
    if name == "cpu" and device == "cpu":
        from labkit.kernels.cpu import CPUAttention

        return CPUAttention
    if name == "triton" and (device == "cuda" or os.environ.get("TRITON_INTERPRET") == "1"):
        from labkit.kernels.gpu.launch import TritonAttention

        return TritonAttention
    if name in ("gathered", "torch"):
        from labkit.kernels import reference

        both = {"gathered": reference.GatheredAttention, "torch": reference.PagedAttention}
        return both[name]
    raise ValueError(
        f"attention {name!r} does not run on {device!r}; there are {', '.join(IMPLEMENTATIONS)}, "
        "of which cpu is for a CPU, triton for a GPU (or its interpreter), the others for both"
    )


def attention_for(batch, name: str | None = None):
    """A callable `(q, kv) -> out` for one step, the same for every layer.

    `batch` is a `FlatBatch`; `q` is `[T, heads, head_dim]`, `kv` one layer of the cache,
    `[num_blocks, 2, kv_heads, block_size, head_dim]`, which holds this step's keys and values
    already; `out` is like `q`. What depends on the batch alone is prepared here, once a step.
    `name` and ValueError are those of `implementation`.
    """
    return implementation(batch.token_ids.device.type, name)(batch)


def paged_attention(q, kv, batch, name: str | None = None):
    """Attention of one layer of a step, `[T, heads, head_dim]`; all as `attention_for` has it."""
    return attention_for(batch, name)(q, kv)
