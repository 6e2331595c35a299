"""The innermost loop of a product, kept in the registers of the processor.

A weight lies in panels: WIDTH of its rows side by side, `[in, WIDTH]`. A tile of the result, some
rows of x times one panel, stays in registers while the panel streams by: each number of x
multiplies a whole line of the panel. Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication" (2008), build on such a tile. Numba doesn't keep one in registers by itself; so
`tile_of` is put together from LLVM's instructions.
"""

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

FEATURES = llvmlite.binding.get_host_cpu_features()
# 24 of 32 registers with 16 numbers each hold a tile; or else 12 of 16 registers with 8.
WIDTH, MOST_ROWS = (32, 12) if FEATURES.get("avx512f") else (16, 6)
LINE = 64  # bytes that come from memory together
ENTRY = 4  # bytes: a float32, or four integers of 8 bits that are multiplied together

VOID, I8, I32, I64 = ir.VoidType(), ir.IntType(8), ir.IntType(32), ir.IntType(64)
F32 = ir.FloatType()


def call(builder, name: str, result, *arguments):
    """A function of LLVM, declared where it is first called."""
    known = builder.module.globals.get(name)
    kinds = [argument.type for argument in arguments]
    known = known or ir.Function(builder.module, ir.FunctionType(result, kinds), name)
    return builder.call(known, arguments)


def load(builder, address, kind):
    value = builder.load(builder.inttoptr(address, kind.as_pointer()))
    value.align = 1
    return value


def ask_for(builder, address):
    """Has a line come from memory into the second cache, while other work goes on."""
    place = builder.inttoptr(address, I8.as_pointer())
    call(builder, "llvm.prefetch.p0i8", VOID, place, I32(0), I32(2), I32(1))


@intrinsic
def ask(_, address):
    """`ask(address)` for compiled loops: has the line there come from memory meanwhile."""

    def generate(context, builder, signature, values):
        ask_for(builder, values[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def floats(builder, line, many, sums):
    """sums + line * many, for WIDTH numbers in float32."""
    return call(builder, f"llvm.fma.v{WIDTH}f32", sums.type, line, many, sums)


def tile_of(rows: int, kind=F32, multiply_and_add=floats):
    """`tile(x, x_stride, panel, start, out, out_stride, depth, ahead, step)` for compiled loops.

    It computes `rows` rows of a result with WIDTH entries each: `start`, plus the first `depth`
    entries of each row of `x` times the lines of `panel`. Everything is given by address, the
    distance of rows in bytes. With each line, what lies at `ahead` is asked from memory, and
    `ahead` moves on by `step` bytes.
    """
    line = ir.VectorType(kind, WIDTH)
    nowhere = line(ir.Undefined)
    to_all = ir.Constant(ir.VectorType(I32, WIDTH), [0] * WIDTH)

    @intrinsic
    def tile(_, x, x_stride, panel, start, out, out_stride, depth, ahead, step):
        def generate(context, builder, signature, values):
            x, x_stride, panel, start, out, out_stride, depth, ahead, step = values
            first, before = load(builder, start, line), builder.basic_block
            loop, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
            builder.branch(loop)
            builder.position_at_end(loop)
            k = builder.phi(I64)
            sums = [builder.phi(line) for _ in range(rows)]
            weights = load(builder, builder.add(panel, builder.mul(k, I64(ENTRY * WIDTH))), line)
            wanted = builder.add(ahead, builder.mul(k, step))
            ask_for(builder, wanted)
            ask_for(builder, builder.add(wanted, I64(LINE)))
            place, added = builder.add(x, builder.mul(k, I64(ENTRY))), []
            for _ in range(rows):
                one = builder.insert_element(nowhere, load(builder, place, kind), I32(0))
                many = builder.shuffle_vector(one, nowhere, to_all)
                added.append(multiply_and_add(builder, weights, many, sums[len(added)]))
                place = builder.add(place, x_stride)
            next_k = builder.add(k, I64(1))
            k.add_incoming(I64(0), before)
            k.add_incoming(next_k, loop)
            for old, new in zip(sums, added, strict=True):
                old.add_incoming(first, before)
                old.add_incoming(new, loop)
            builder.cbranch(builder.icmp_signed("<", next_k, depth), loop, after)
            builder.position_at_end(after)
            for value in added:
                builder.store(value, builder.inttoptr(out, line.as_pointer())).align = 1
                out = builder.add(out, out_stride)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 9), generate

    return tile

