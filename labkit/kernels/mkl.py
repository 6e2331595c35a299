"""Products with a packed matrix from torch's own oneMKL, called from compiled loops.

Intel or AMD processor, Linux: elsewhere torch doesn't give its MKL to others. `sgemm` of MKL for
a packed matrix is described in Intel's "Developer Reference for oneMKL", cblas_gemm_pack.
"""

import ctypes
import mmap
from contextlib import suppress
from functools import cache
from pathlib import Path

import llvmlite.binding
import numpy as np
import torch
from numba import prange, types

from labkit.kernels import loops

ROW_MAJOR, NOT_TRANSPOSED, TRANSPOSED, PACKED, MATRIX_B = 101, 111, 112, 151, 162
LARGE_PAGE = 2**21
FUNCTIONS = (
    "sgemm_", "cblas_sgemm_pack", "cblas_sgemm_compute", "MKL_Set_Num_Threads_Local",
)  # fmt: skip
QUERIES = 64  # of a chunk, whose scores are computed together
EXPECTED_ROWS = 256  # MKL chooses its order for so many rows of x; it is good for 1 to 512

i32, f32, address = types.int32, types.float32, types.uintp
sgemm = types.ExternalFunction("sgemm_", types.void(*[address] * 13))  # of BLAS, all by reference
threads_here = types.ExternalFunction("MKL_Set_Num_Threads_Local", i32(i32))
sgemm_packed = types.ExternalFunction(
    "cblas_sgemm_compute",
    types.void(i32, i32, i32, i32, i32, i32, address, i32, address, i32, f32, address, i32),
)


@cache
def library() -> ctypes.CDLL | None:
    """The library with torch's MKL, where compiled loops find it from now on; None without."""
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        found = ctypes.CDLL(str(path))
        found.cblas_sgemm_pack_get_size.restype = ctypes.c_size_t
        for name in FUNCTIONS:
            found[name]
        llvmlite.binding.load_library_permanently(str(path))
    except (OSError, AttributeError, RuntimeError):
        return None
    return found


class PackedMatrix:
    """A weight `[out, in]` (float32) in MKL's own order, at `address`.

    It lies in pages of 2 MB, if there are any: a step walks through all weights, and the processor
    finds 300 such pages sooner than 140,000 small ones. MKL asks for twice the size and more and
    begins at a multiple of 2 MB; what it leaves out is never touched and costs no memory.
    """

    def __init__(self, weight: torch.Tensor):
        self.outputs, self.inputs = weight.shape
        sizes = (EXPECTED_ROWS, self.outputs, self.inputs)
        size = library().cblas_sgemm_pack_get_size(MATRIX_B, *sizes)
        own = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # shared memory has no large pages
        self.memory = mmap.mmap(-1, size + 2 * LARGE_PAGE, flags=own)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        aligned = -(-(begin + mmap.PAGESIZE) // LARGE_PAGE) * LARGE_PAGE - begin
        whole, rest = divmod(4 * self.outputs * self.inputs, LARGE_PAGE)
        large = whole + (rest >= LARGE_PAGE / 2)  # or else most of the last would be empty
        with suppress(OSError, ValueError, AttributeError):  # a kernel without large pages
            self.memory.madvise(mmap.MADV_HUGEPAGE, aligned, large * LARGE_PAGE)
        self.address = begin + aligned - mmap.PAGESIZE  # a short head, then the numbers
        weight = weight.float().contiguous()
        library().cblas_sgemm_pack(
            ROW_MAJOR, MATRIX_B, TRANSPOSED, *sizes, ctypes.c_float(1.0),
            ctypes.c_void_p(weight.data_ptr()), self.inputs,
            ctypes.c_void_p(self.address),
        )  # fmt: skip


@loops.compiled
def product(x, weight, bias, out):
    """out = x @ weight.T + bias; `weight` is the address of a packed one.

    A bias of no numbers is none.
    """
    for t in range(len(x) if len(bias) else 0):
        out[t] = bias
    sgemm_packed(
        ROW_MAJOR, NOT_TRANSPOSED, PACKED, len(x), out.shape[1], x.shape[1],
        x.ctypes.data, x.shape[1], weight, x.shape[1],
        np.float32(1 if len(bias) else 0), out.ctypes.data, out.shape[1],
    )  # fmt: skip


@loops.compiled
def blas(transposed, sizes, factor, a, b, out):
    """out = factor * a @ b, or a.T @ b, for matrices that BLAS sees: column by column.

    `sizes` (m, n, k, and the distance between columns of a, b, out), the matrices by address.
    """
    letters = np.array([ord("T") if transposed else ord("N"), ord("N")], np.uint8)
    numbers, factors = np.array(sizes, np.int32), np.array([factor, 0], np.float32)
    i, f = numbers.ctypes.data, factors.ctypes.data
    t = letters.ctypes.data
    sgemm(t, t + 1, i, i + 4, i + 8, f, a, i + 12, b, i + 16, f + 4, out, i + 20)
    letters[0] = numbers[0] = factors[0] = 0  # what is used no more is freed: not before this


@loops.compiled(parallel=True)
def attend_chunks(q, kv, chunks, block_tables, out):
    """Causal attention of several new tokens each: a head and 64 queries after the other.

    `chunks` `[C, 4]` (int64) are request, number of tokens, first row in `q` and `out`, tokens
    that the last one sees. The keys and values of the head are gathered first: each is multiplied
    with every query, and the copy doesn't matter.
    """
    num_heads, head_dim = q.shape[1], q.shape[2]
    kv_heads, block_size = kv.shape[2], kv.shape[3]
    one = np.float32(1)
    factor = one / np.sqrt(np.float32(head_dim))
    stride = num_heads * head_dim
    for job in prange(len(chunks) * num_heads):
        before = threads_here(1)  # the jobs are what runs in parallel
        head = job % num_heads
        request, count, row, context_len = chunks[job // num_heads]
        kv_head = head // (num_heads // kv_heads)
        num_blocks = (context_len + block_size - 1) // block_size
        keys = np.empty((num_blocks * block_size, head_dim), np.float32)
        values = np.empty_like(keys)
        for b in range(num_blocks):
            block, place = kv[block_tables[request, b]], slice(b * block_size, (b + 1) * block_size)
            keys[place], values[place] = block[0, kv_head], block[1, kv_head]
        scores = np.empty((QUERIES, context_len), np.float32)
        for first in range(0, count, QUERIES):
            rows = min(QUERIES, count - first)
            seen = context_len - count + first + rows  # by the last of them
            queries, results = q[row + first :, head], out[row + first :, head]
            there = scores.ctypes.data
            sizes = (seen, rows, head_dim, head_dim, stride, context_len)
            blas(True, sizes, factor, keys.ctypes.data, queries.ctypes.data, there)
            for i in range(rows):
                loops.softmax(scores[i, :seen], seen - rows + i + 1)
            sizes = (head_dim, rows, seen, head_dim, context_len, stride)
            blas(False, sizes, one, values.ctypes.data, there, results.ctypes.data)
        threads_here(before)
