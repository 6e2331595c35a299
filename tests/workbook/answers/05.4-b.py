def walk(
    query, kv, table, seen, begin, end, kv_head, scale, window,
    KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
    HEAD_DIM: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr,
):
    state = (
        tl.full([ROWS], LOWEST, tl.float32),
        tl.full([ROWS], 0.0, tl.float32),
        tl.full([ROWS, DIM], 0.0, tl.float32),
    )
    length = tl.max(seen, axis=0) + 1
    for first in range(begin * TILE, end * TILE, TILE):
        places = tl.arange(0, TILE) + first
        there = places < length
        keys, values = load_tile(
            kv, table, places, there, kv_head, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM
        )
        scores = scale * tl.dot(query, tl.trans(keys))
        hidden = (places[None, :] > seen[:, None]) | (seen[:, None] - places[None, :] >= window)
        scores = tl.where(hidden, float("-inf"), scores * LOG2_E)
        state = online_softmax(scores, values, state[0], state[1], state[2])
    return state[0], state[1], state[2]
