"""Paged attention of requests with one new token each, to blocks where they lie."""

import numpy as np
from numba import prange

from labkit.kernels import loops, tiles


@loops.compiled
def scores_of_block(query, keys, factor, count, scores, head_dim):
    """query · key * factor for the keys `[block_size, head_dim]` of a block, of which `count` are
    there; in `scores` `[block_size]`."""
    slots = len(keys)
    for s in range(0, slots - 3, 4):  # four at a time: each number of the query is read once
        a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for i in range(head_dim):
            a += query[i] * keys[s, i]
            b += query[i] * keys[s + 1, i]
            c += query[i] * keys[s + 2, i]
            d += query[i] * keys[s + 3, i]
        scores[s], scores[s + 1] = a * factor, b * factor
        scores[s + 2], scores[s + 3] = c * factor, d * factor
    for s in range(slots // 4 * 4, slots):
        a = np.float32(0)
        for i in range(head_dim):
            a += query[i] * keys[s, i]
        scores[s] = a * factor
    for s in range(count, slots):
        scores[s] = loops.LOWEST


@loops.compiled
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


@loops.compiled
def ask_for(numbers):
    """Has `numbers` `[block_size, head_dim]` come from memory while other work goes on."""
    begin = numbers.ctypes.data
    for offset in range(0, 4 * numbers.size, tiles.LINE):
        tiles.ask(begin + offset)


@loops.compiled
def attend_over_blocks(query, kv, block_table, context_len, first, group, out, head_dim):
    """Attention of one new token: its heads from `first` on, as many as `query` has.

    `query` and `out` are `[heads, head_dim]`; each `group` of heads shares a kv head.
    FlashAttention's softmax (Dao et al., 2022): block after block, with the largest score so far
    and the sum of weights so far; when a larger one comes, what was added up is scaled down. So
    keys and values are read in one go, and no table of scores is needed.
    """
    heads, block_size = len(query), kv.shape[3]
    factor = np.float32(1) / np.sqrt(np.float32(head_dim))
    most, total = np.full(heads, loops.LOWEST), np.zeros(heads, np.float32)
    scores = np.empty((heads, block_size), np.float32)
    out[:] = np.float32(0)
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
            rescale, added = loops.exp(most[h] - largest), np.float32(0)
            most[h] = largest
            for s in range(block_size):
                scores[h, s] = loops.exp(scores[h, s] - largest)
                added += scores[h, s]
            total[h] = total[h] * rescale + added
            for i in range(head_dim):
                out[h, i] *= rescale
            values = block[1, (first + h) // group]
            add_values_of_block(values, scores[h], count, out[h], head_dim)
    for h in range(heads):
        for i in range(head_dim):
            out[h, i] /= total[h]


@loops.compiled(parallel=True)
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


@loops.compiled
def turn_keep_attend(heads, norms, batch, kv, q, out):
    """`turn_and_keep` and then `attend`, for one layer."""
    raw, scale = heads
    q_norm, k_norm, eps = norms
    turns, slots, rows, block_tables, context_lens = batch
    loops.turn_and_keep(raw, scale, turns, q_norm, k_norm, eps, slots, kv, q)
    attend(q, kv, rows, block_tables, context_lens, out)
