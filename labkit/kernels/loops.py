"""Loops over rows for a CPU, compiled by Numba: all that a decode step does beside its products.

The weights stream through the caches of a core, and with them goes everything else. So each
call of a library finds its own code far away, and 40 small ones in a layer take as long as the
products. Here the same work is a few.

Arrays are float32 and C-contiguous unless said otherwise; T tokens, R decoding requests. `raw`
`[T, out]` with `scale` `[T]` is what a product gave: the value is raw * scale, row by row.
Kernels let go of the GIL. The first call on a machine compiles; the result is kept on disk.
"""

import numba
import numpy as np
import torch
from numba import prange

# Sums may be added up in any order; NaN and infinity stay what they are.
FAST = {"reassoc", "contract", "arcp", "nsz", "afn"}
float32 = np.float32
LOWEST = float32(-1e30)
# The middle of 8-bit numbers. Without the VNNI instructions oneDNN adds two products up in 16 bits,
# which must not overflow.
ZERO = 127 if torch.cpu._is_vnni_supported() else 63


def compiled(function=None, **options):
    """Numba's `njit` as it is used here."""
    if function is None:
        return lambda function: compiled(function, **options)
    options = {"fastmath": FAST, "cache": True, "nogil": True, "error_model": "numpy"} | options
    try:
        return numba.njit(**options)(function)
    except RuntimeError:  # no folder that can be written to: each process compiles for itself
        return numba.njit(**options | {"cache": False})(function)


def share_threads() -> None:
    """Has the loops run on as many threads as torch's operations do.

    Numba sets the number for the OpenMP that both use when it begins, so torch gets its own back.
    """
    threads = torch.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


@compiled
def exp(x):
    """e^x without a branch, for many at once: 2^whole by its bits, 2^rest by a polynomial.

    Right to (3 + 0.6 |x|) 1e-7 of itself. Ends at e^-87 and e^87; NaN and infinity give NaN.
    """
    power = min(max(x * float32(1.4426950408889634), float32(-126)), float32(126))
    whole = np.floor(power)
    rest = power - whole
    value = float32(1.8775767e-3)
    value = value * rest + float32(8.9893397e-3)
    value = value * rest + float32(5.5826318e-2)
    value = value * rest + float32(2.4015361e-1)
    value = value * rest + float32(6.9315308e-1)
    value = value * rest + float32(9.9999994e-1)
    power_of_2 = np.int32((np.int32(whole) + 127) << 23).view(float32)
    return value * power_of_2 + x * float32(0)  # which is 0, or NaN


@compiled
def largest_of(row):
    """The largest size of a number in the row; NaN when one of them is not finite."""
    largest, broken = float32(0), float32(0)
    for value in row:
        largest = max(largest, abs(value))
        broken += value * float32(0)
    return largest + broken


@compiled(parallel=True)
def quantize(x, zero, out, scale):
    """Rows of x as `out` (uint8, from 0 to 2 * zero) and `scale`: x ≈ (out - zero) * scale."""
    for t in prange(len(x)):
        largest = max(largest_of(x[t]), float32(1e-20))
        steps = float32(zero) / largest
        for i in range(x.shape[1]):
            out[t, i] = np.uint8(np.int32(x[t, i] * steps + (float32(zero) + float32(0.5))))
        scale[t] = largest / float32(zero)


@compiled
def finish(operand):
    """Fills the second and third array of an `Operand` of `model.linear` from the first."""
    values, integers, scale = operand
    if len(integers):
        quantize(values, ZERO, integers, scale)


@compiled(parallel=True)
def normalize(x, eps, out):
    """`out` = each row of x / its root mean square, both `[T, hidden]`: what a product reads."""
    width = x.shape[1]
    for t in prange(len(x)):
        squares = float32(0)
        for i in range(width):
            squares += x[t, i] * x[t, i]
        factor = float32(1) / np.sqrt(squares / float32(width) + eps)
        for i in range(width):
            out[t, i] = x[t, i] * factor


@compiled(parallel=True)
def add_and_normalize(x, raw, scale, eps, operand):
    """x += raw * scale; the operand of the next product is x, normalized."""
    for t in prange(len(x)):
        for i in range(x.shape[1]):
            x[t, i] += raw[t, i] * scale[t]
    normalize(x, eps, operand[0])
    finish(operand)


@compiled(parallel=True)
def gate(raw, scale, operand):
    """silu(first half) * second half, `[T, intermediate]`: the MLP's last operand."""
    out = operand[0]
    width = out.shape[1]
    for t in prange(len(raw)):
        for i in range(width):
            value = raw[t, i] * scale[t]
            out[t, i] = value / (float32(1) + exp(-value)) * raw[t, width + i] * scale[t]
    finish(operand)


@compiled
def normalize_head(head, weight, eps):
    """Qwen3's norm of one query or key; a weight of no numbers leaves it as it is."""
    if len(weight) == 0:
        return
    squares = float32(0)
    for value in head:
        squares += value * value
    factor = float32(1) / np.sqrt(squares / float32(len(head)) + eps)
    for i in range(len(head)):
        head[i] *= factor * weight[i]


@compiled(parallel=True)
def turn_and_keep(raw, scale, turns, q_norm, k_norm, eps, slots, kv, q):
    """Queries turned to their positions, in `q`; keys and values in the cache, in their slots.

    `raw` `[T, heads + 2 * kv_heads, head_dim]`, `turns` `[T, head_dim / 2, 2]` (cosine, sine),
    `slots` `[T]` (int64), `kv` `[num_blocks, 2, kv_heads, block_size, head_dim]`. `raw` is used up.
    """
    num_heads, head_dim = q.shape[1], q.shape[2]
    kv_heads, block_size = kv.shape[2], kv.shape[3]
    for t in prange(len(raw)):
        block, offset = kv[slots[t] // block_size], slots[t] % block_size
        for h in range(num_heads + kv_heads):
            head = raw[t, h]
            for i in range(head_dim):
                head[i] *= scale[t]
            is_query = h < num_heads
            normalize_head(head, q_norm if is_query else k_norm, eps)
            turned = q[t, h] if is_query else block[0, h - num_heads, offset]
            for i in range(head_dim // 2):
                even, odd = head[2 * i], head[2 * i + 1]
                turned[2 * i] = even * turns[t, i, 0] - odd * turns[t, i, 1]
                turned[2 * i + 1] = even * turns[t, i, 1] + odd * turns[t, i, 0]
        for h in range(kv_heads):
            for i in range(head_dim):
                block[1, h, offset, i] = raw[t, num_heads + kv_heads + h, i] * scale[t]


@compiled
def softmax(scores, count):
    """The softmax of the first `count` scores, in place; the others become 0."""
    largest, total = LOWEST, float32(0)
    for i in range(count):
        largest = max(largest, scores[i])
    for i in range(count):
        scores[i] = exp(scores[i] - largest)
        total += scores[i]
    for i in range(count):
        scores[i] /= total
    scores[count:] = float32(0)
