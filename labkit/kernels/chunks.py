"""Attention of chunks: many new tokens of one request, as when its prompt is computed."""

import numpy as np
from numba import prange

from labkit.kernels import loops
from labkit.kernels.panels import multiply_columns
from labkit.kernels.tiles import ENTRY, MOST_ROWS, WIDTH

QUERIES = 4 * MOST_ROWS  # whose scores are computed together


@loops.compiled
def gather(kv, kv_head, block_table, context_len, keys, values):
    """Keys and values of one head as panels: `keys` `[panels, head_dim, WIDTH]`, a key in each
    column, and `values` `[panels, context_len, WIDTH]`, a value in each line."""
    block_size, head_dim = kv.shape[3], kv.shape[4]
    for t in range(context_len):
        block, slot = kv[block_table[t // block_size]], t % block_size
        for i in range(head_dim):
            keys[t // WIDTH, i, t % WIDTH] = block[0, kv_head, slot, i]
            values[i // WIDTH, t, i % WIDTH] = block[1, kv_head, slot, i]


@loops.compiled
def multiply(x, panels, lines, start, out):
    """out = x @ panels, which have so many lines: as many as `x` columns, or more."""
    for p in range((out.shape[1] + WIDTH - 1) // WIDTH):
        multiply_columns(x, panels.ctypes.data, ENTRY * WIDTH * lines, start, out, p)


@loops.compiled(parallel=True)
def attend_chunks(q, kv, chunks, block_tables, out):
    """Causal attention of several new tokens each: a head and some queries after the other.

    `chunks` `[C, 4]` (int64) are request, number of tokens, first row in `q` and `out`, tokens
    that the last one sees. The keys and values of the head are gathered first: each is multiplied
    with every query, and the copy doesn't matter.
    """
    num_heads, head_dim = q.shape[1], q.shape[2]
    group = num_heads // kv.shape[2]
    factor = np.float32(1) / np.sqrt(np.float32(head_dim))
    for job in prange(len(chunks) * num_heads):
        head = job % num_heads
        request, count, row, context_len = chunks[job // num_heads]
        longest = (context_len + WIDTH - 1) // WIDTH
        keys = np.zeros((longest, head_dim, WIDTH), np.float32)
        values = np.zeros(((head_dim + WIDTH - 1) // WIDTH, context_len, WIDTH), np.float32)
        gather(kv, head // group, block_tables[request], context_len, keys, values)
        nothing = np.zeros(max(longest, len(values)) * WIDTH, np.float32)
        for first in range(0, count, QUERIES):
            rows = min(QUERIES, count - first)
            begin, end = row + first, row + first + rows
            seen = context_len - count + first + rows  # by the last of them
            scores = np.empty((rows, (seen + WIDTH - 1) // WIDTH * WIDTH), np.float32)
            multiply(q[begin:end, head], keys, head_dim, nothing, scores)
            for i in range(rows):
                for t in range(seen):
                    scores[i, t] *= factor
                loops.softmax(scores[i, :seen], seen - rows + i + 1)
            multiply(scores[:, :seen], values, context_len, nothing, out[begin:end, head])
