def load_tile(
    kv, table, places, there, kv_head,
    KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, DIM: tl.constexpr,
):
    blocks = tl.load(table + places // BLOCK_SIZE, mask=there)
    blocks = blocks.to(tl.int64)
    row = kv_head * BLOCK_SIZE + places % BLOCK_SIZE
    keys = load_lines(kv, blocks * (2 * KV_HEADS * BLOCK_SIZE) + row, there, HEAD_DIM, DIM)
    values = load_lines(kv, (2 * blocks + 1) * (KV_HEADS * BLOCK_SIZE) + row, there, HEAD_DIM, DIM)
    return keys, values
