def load_tile(
    kv, table, places, there, kv_head,
    KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, DIM: tl.constexpr,
):
    entry, slot = places // BLOCK_SIZE, places % BLOCK_SIZE
    block = tl.load(table + entry, mask=there, other=-1).to(tl.int64)
    half = KV_HEADS * BLOCK_SIZE * HEAD_DIM
    first = block * (2 * half) + (kv_head * BLOCK_SIZE + slot) * HEAD_DIM
    dims = tl.arange(0, DIM)
    at = first[:, None] + dims[None, :]
    mask = there[:, None] & (dims < HEAD_DIM)[None, :]
    keys = tl.load(kv + at, mask=mask, other=0.0)
    values = tl.load(kv + half + at, mask=mask, other=0.0)
    return keys, values
