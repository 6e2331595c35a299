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

from labkit.kernels import tiles

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
def scores_of_block(query, keys, factor, count, scores, head_dim):
    """query · key * factor for the keys `[block_size, head_dim]` of a block, of which `count` are
    there; in `scores` `[block_size]`."""
    slots = len(keys)
    for s in range(0, slots - 3, 4):  # four at a time: each number of the query is read once
        a, b, c, d = float32(0), float32(0), float32(0), float32(0)
        for i in range(head_dim):
            a += query[i] * keys[s, i]
            b += query[i] * keys[s + 1, i]
            c += query[i] * keys[s + 2, i]
            d += query[i] * keys[s + 3, i]
        scores[s], scores[s + 1] = a * factor, b * factor
        scores[s + 2], scores[s + 3] = c * factor, d * factor
    for s in range(slots // 4 * 4, slots):
        a = float32(0)
        for i in range(head_dim):
            a += query[i] * keys[s, i]
        scores[s] = a * factor
    for s in range(count, slots):
        scores[s] = LOWEST


@compiled
def add_values_of_block(values, weights, count, out, head_dim):
    """out `[head_dim]` += the values of a block, `[block_size, head_dim]`, times their weights."""
    for s in range(0, count - 3, 4):
        for i in range(head_dim):
            out[i] += (weights[s] * values[s, i] + weights[s + 1] * values[s + 1, i]) + (
                weights[s + 2] * values[s + 2, i] + weights[s + 3] * values[s + 3, i]
            )
    for s in range(count // 4 * 4, count):
        for i in range(head_dim):
            out[i] += weights[s] * values[s, i]


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


@compiled
def ask_for(numbers):
    """Has `numbers` `[block_size, head_dim]` come from memory while other work goes on."""
    begin = numbers.ctypes.data
    for offset in range(0, 4 * numbers.size, tiles.LINE):
        tiles.ask(begin + offset)


@compiled
def attend_over_blocks(query, kv, block_table, context_len, first, group, out, head_dim):
    """Attention of one new token: its heads from `first` on, as many as `query` has.

    `query` and `out` are `[heads, head_dim]`; each `group` of heads shares a kv head.
    FlashAttention's softmax (Dao et al., 2022): block after block, with the largest score so far
    and the sum of weights so far; when a larger one comes, what was added up is scaled down. So
    keys and values are read in one go, and no table of scores is needed.
    """
    heads, block_size = len(query), kv.shape[3]
    factor = float32(1) / np.sqrt(float32(head_dim))
    most, total = np.full(heads, LOWEST), np.zeros(heads, np.float32)
    scores = np.empty((heads, block_size), np.float32)
    out[:] = float32(0)
    num_blocks = (context_len + block_size - 1) // block_size
    for b in range(num_blocks):
        block, next_block = kv[block_table[b]], kv[block_table[min(b + 1, num_blocks - 1)]]
        if heads == group:  # one kv head; whole blocks, read in one go, the processor foresees
            ask_for(next_block[0, first // group])
            ask_for(next_block[1, first // group])
        count = min(block_size, context_len - b * block_size)
        for h in range(heads):
            keys = block[0, (first + h) // group]
            scores_of_block(query[h], keys, factor, count, scores[h], head_dim)
        for h in range(heads):
            largest = most[h]
            for s in range(block_size):
                largest = max(largest, scores[h, s])
            rescale, added = exp(most[h] - largest), float32(0)
            most[h] = largest
            for s in range(block_size):
                scores[h, s] = exp(scores[h, s] - largest)
                added += scores[h, s]
            total[h] = total[h] * rescale + added
            for i in range(head_dim):
                out[h, i] *= rescale
            values = block[1, (first + h) // group]
            add_values_of_block(values, scores[h], count, out[h], head_dim)
    for h in range(heads):
        for i in range(head_dim):
            out[h, i] /= total[h]


@compiled(parallel=True)
def attend(q, kv, rows, block_tables, context_lens, out):
    """Attention of R new tokens, to blocks where they lie.

    They are the rows `rows` `[R]` of `q` and `out` `[T, heads, head_dim]`, and see the first
    `context_lens` `[R]` tokens in the blocks `block_tables` `[R, max_blocks]` (all int64).
    """
    num_heads, head_dim = q.shape[1], q.shape[2]
    kv_heads = kv.shape[2]
    group = num_heads // kv_heads
    parts = 1 if len(rows) >= 8 else kv_heads  # few requests: a thread takes some of the heads
    heads = num_heads // parts
    for job in prange(len(rows) * parts):
        r, first = job // parts, job % parts * heads
        query = q[rows[r], first : first + heads]
        result = out[rows[r], first : first + heads]
        table, length = block_tables[r], context_lens[r]
        if head_dim == 64:  # a number that the compiler knows: a quarter less time
            attend_over_blocks(query, kv, table, length, first, group, result, 64)
        elif head_dim == 128:
            attend_over_blocks(query, kv, table, length, first, group, result, 128)
        else:
            attend_over_blocks(query, kv, table, length, first, group, result, head_dim)


@compiled
def turn_keep_attend(heads, norms, batch, kv, q, out):
    """`turn_and_keep` and then `attend`, for one layer."""
    raw, scale = heads
    q_norm, k_norm, eps = norms
    turns, slots, rows, block_tables, context_lens = batch
    turn_and_keep(raw, scale, turns, q_norm, k_norm, eps, slots, kv, q)
    attend(q, kv, rows, block_tables, context_lens, out)
