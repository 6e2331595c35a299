def walk(
    query, kv, table, seen, begin, end, kv_head, scale, window,
    KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
    HEAD_DIM: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr,
):
    total = tl.zeros([ROWS], tl.float32)
    acc = tl.zeros([ROWS, DIM], tl.float32)
    most = total + LOWEST
    furthest = tl.max(seen, axis=0)
    start = begin * TILE
    for _ in range(end - begin):
        at = start + tl.arange(0, TILE)
        keys, values = load_tile(
            kv, table, at, at <= furthest, kv_head, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM
        )
        distance = seen[:, None] - at[None, :]
        visible = (distance >= 0) & (distance < window)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale * LOG2_E
        most, total, acc = online_softmax(
            tl.where(visible, scores, float("-inf")), values, most, total, acc
        )
        start += TILE
    return most, total, acc
