"""Compiles the kernels for GPUs that aren't there, and reads what the machine code needs.

The wheel of Triton holds the whole way from Python to machine code, and `cuobjdump` to look into
it. Needs neither a GPU nor CUDA; Linux only, as Triton.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from labkit.kernels.gpu import launch, paged

SHARED_LIMIT = {80: 163, 86: 99, 89: 99, 90: 227}  # KiB a program may have, by compute capability
POINTERS = {"float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32"}
ITEMSIZES = {"float16": 2, "bfloat16": 2, "float32": 4}
KERNELS = ("decode", "decode split", "merge", "prefill", "write")


@dataclass(frozen=True)
class Shape:
    """What a kernel is compiled for."""

    kernel: str  # one of KERNELS
    dtype: str
    head_dim: int
    block_size: int = 16
    group: int = 3  # query heads that share a kv head
    kv_heads: int = 3


@dataclass(frozen=True)
class Needs:
    """What one program needs on one kind of GPU."""

    capability: int  # 90 is 9.0: H100
    registers: int  # of each thread; 255 is the most there are
    spilled: int  # bytes of each thread that had no register and go through memory
    shared: int  # bytes of fast memory
    num_warps: int


def specification(shape: Shape) -> tuple:
    """(kernel, types of its arguments, its constants, warps, stages) as `launch` starts it."""
    number, itemsize = POINTERS[shape.dtype], ITEMSIZES[shape.dtype]
    dim, group = launch.power_of_two(shape.head_dim), shape.group
    common = {
        "KV_HEADS": shape.kv_heads, "GROUP": group, "HEAD_DIM": shape.head_dim, "DIM": dim,
        "BLOCK_SIZE": shape.block_size,
    }  # fmt: skip
    splits = 8 if shape.kernel in ("decode split", "merge") else 1
    if shape.kernel.startswith("decode"):
        sizes = launch.decode_sizes(itemsize, shape.head_dim, group)
        constants = common | {"ROWS": sizes.rows, "TILE": sizes.tile, "SPLITS": splits}
        return paged.decode_kernel, number, constants, sizes.num_warps, sizes.num_stages
    if shape.kernel == "prefill":
        sizes = launch.prefill_sizes(itemsize, shape.head_dim, group)
        constants = common | {"ROWS": sizes.rows, "TILE": sizes.tile}
        return paged.prefill_kernel, number, constants, sizes.num_warps, sizes.num_stages
    if shape.kernel == "merge":
        heads = shape.kv_heads * group
        constants = {"HEADS": heads, "HEAD_DIM": shape.head_dim, "DIM": dim, "SPLITS": splits}
        return paged.merge_kernel, number, constants, 4, 2
    width = launch.power_of_two(2 * shape.kv_heads * shape.head_dim)
    constants = {key: common[key] for key in ("KV_HEADS", "HEAD_DIM", "BLOCK_SIZE")}
    return paged.write_kernel, number, constants | {"WIDTH": width}, 4, 2


NUMBERS = {"q", "kv", "out", "new"}  # arguments in the model's own precision
SUMS = {"maxima", "totals", "parts"}
SCALARS = {"max_blocks": "i32", "window": "i32", "scale": "fp32"}


def needs(shape: Shape, capability: int) -> Needs:
    """Compiles a kernel for a compute capability, 80 for 8.0, and looks at the machine code."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, number, constants, num_warps, num_stages = specification(shape)
    signature = {
        name: number if name in NUMBERS else "*fp32" if name in SUMS
        else SCALARS.get(name, "constexpr" if name in constants else "*i64")
        for name in kernel.arg_names
    }  # fmt: skip
    aligned = [i for i, kind in enumerate(signature.values()) if kind.startswith("*")]
    source = ASTSource(
        fn=kernel, signature=signature, constexprs=constants,
        attrs={(i,): [["tt.divisibility", 16]] for i in aligned},
    )  # fmt: skip
    built = triton.compile(
        source, target=GPUTarget("cuda", capability, 32),
        options={"num_warps": num_warps, "num_stages": num_stages},
    )  # fmt: skip
    registers, stack, local = resources(built.asm["cubin"])
    return Needs(capability, registers, stack + local, built.metadata.shared, num_warps)


def resources(cubin: bytes) -> tuple[int, int, int]:
    """Registers, bytes of stack and bytes of local memory of each thread."""
    from triton import backends

    tool = Path(backends.__path__[0]) / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        told = subprocess.run(
            [tool, "--dump-resource-usage", file], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", told)
    if found is None:
        raise RuntimeError(f"cuobjdump says nothing about registers: {told[:200]!r}")
    return tuple(map(int, found.groups()))


def shapes() -> Iterator[Shape]:
    """Every configuration that has a default: dtypes, head sizes, block sizes, groups."""
    for dtype in POINTERS:
        for head_dim in (64, 80, 96, 128):
            for kernel in KERNELS:
                yield Shape(kernel, dtype, head_dim)
    for kernel in ("decode", "decode split", "prefill", "write"):
        for block_size in (8, 32, 64, 128):
            yield Shape(kernel, "bfloat16", 128, block_size)
        for group in (1, 4, 8, 16):
            yield Shape(kernel, "bfloat16", 128, group=group)


def main() -> int:
    """Reads shapes as JSON, and writes a line `[number, needs]` for each of them and each GPU."""
    for i, values in enumerate(json.load(sys.stdin)):
        for capability in SHARED_LIMIT:
            print(json.dumps([i, vars(needs(Shape(*values), capability))]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
