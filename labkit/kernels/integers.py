"""Products in 8-bit integers for a few rows, on a processor with the VNNI instructions.

oneDNN computes the same; for 1 to 16 rows what surrounds its products takes far longer than they.
Numba has no words for VPDPBUSD, which multiplies 64 pairs of bytes and adds each four of them to
one of 16 sums; so `tile` is put together from LLVM's instructions.
"""

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from labkit.kernels import loops

BYTES = 64  # of a register
SIDE = 4  # a tile is 4 rows of x times 4 rows of the weight: 16 registers of sums
I32, I64 = ir.IntType(32), ir.IntType(64)
REGISTER = ir.VectorType(I32, BYTES // 4)


def available(width: int) -> bool:
    """Whether rows of `width` numbers can be multiplied here."""
    features = llvmlite.binding.get_host_cpu_features()
    return features.get("avx512vnni", False) and width % BYTES == 0


@intrinsic
def tile(_, x, w, width):
    """The sums x_i · w_j (int32) of four rows each, `width` numbers long, a multiple of 64.

    `x` are four addresses of unsigned bytes, `w` of signed ones. Returns 16 sums, those of x_0
    first.
    """
    sums = types.UniTuple(types.int32, SIDE * SIDE)
    addresses = types.UniTuple(types.uintp, SIDE)

    def generate(context, builder, signature, values):
        module = builder.module

        def function(name: str, result, *parameters):
            known = module.globals.get(name)
            return known or ir.Function(module, ir.FunctionType(result, parameters), name)

        dot = function("llvm.x86.avx512.vpdpbusd.512", REGISTER, REGISTER, REGISTER, REGISTER)
        add_up = function(f"llvm.vector.reduce.add.v{REGISTER.count}i32", I32, REGISTER)
        x, w, width = values
        rows = [*cgutils.unpack_tuple(builder, x), *cgutils.unpack_tuple(builder, w)]
        before = builder.basic_block
        loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
        builder.branch(loop)
        builder.position_at_end(loop)
        offset = builder.phi(I64)
        offset.add_incoming(I64(0), before)
        kept = [builder.phi(REGISTER) for _ in range(SIDE * SIDE)]
        bytes_of = []
        for row in rows:
            place = builder.inttoptr(builder.add(row, offset), REGISTER.as_pointer())
            bytes_of.append(builder.load(place))
            bytes_of[-1].align = 1
        added = [
            builder.call(dot, [kept[SIDE * i + j], bytes_of[i], bytes_of[SIDE + j]])
            for i in range(SIDE)
            for j in range(SIDE)
        ]
        for old, new in zip(kept, added, strict=True):
            old.add_incoming(REGISTER(None), before)
            old.add_incoming(new, loop)
        next_offset = builder.add(offset, I64(BYTES))
        offset.add_incoming(next_offset, loop)
        builder.cbranch(builder.icmp_signed("<", next_offset, width), loop, after)
        builder.position_at_end(after)
        return context.make_tuple(
            builder, signature.return_type, [builder.call(add_up, [one]) for one in added]
        )

    return sums(addresses, addresses, types.int64), generate


@loops.compiled
def four_from(first, last):
    """Four numbers from `first` on, none of them above `last`."""
    return first, min(first + 1, last), min(first + 2, last), min(first + 3, last)


@loops.compiled
def addresses(begin, rows, width):
    """Where four rows of a matrix of bytes begin."""
    a, b, c, d = rows
    width = np.uint64(width)
    return (
        begin + np.uint64(a) * width, begin + np.uint64(b) * width,
        begin + np.uint64(c) * width, begin + np.uint64(d) * width,
    )  # fmt: skip


@loops.compiled(parallel=True, fastmath=False)  # to the last bit as oneDNN rounds
def product(integers, scale, weight, zeros, step, bias, out):
    """out[t, n] = ((integers[t] - ZERO) · weight[n]) * step[n] + bias[n] / scale[t].

    `integers` `[T, in]` (uint8), `weight` `[out, in]` (int8); `zeros` is ZERO times the sum of
    each row of the weight (int32). A bias of no numbers is none. At an edge a tile takes the last
    row more than once, and writes the same number again.
    """
    width, last_x, last_w = integers.shape[1], len(integers) - 1, len(weight) - 1
    x, w = np.uint64(integers.ctypes.data), np.uint64(weight.ctypes.data)
    for tile_w in prange((last_w + SIDE) // SIDE):
        ns = four_from(SIDE * tile_w, last_w)
        for t in range(0, last_x + 1, SIDE):
            ts = four_from(t, last_x)
            sums = tile(addresses(x, ts, width), addresses(w, ns, width), width)
            for i in range(SIDE):
                for j in range(SIDE):
                    n = ns[j]
                    value = np.float32(sums[SIDE * i + j] - zeros[n]) * step[n]
                    out[ts[i], n] = value + bias[n] / scale[ts[i]] if len(bias) else value
