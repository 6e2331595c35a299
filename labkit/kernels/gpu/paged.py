"""Paged attention in Triton, the kernel language: decode, split over the context, and prefill.

One program serves the query heads that share one kv head, so that each key is read once for all
of them (grouped queries). It walks the tokens of its sequence, TILE at a time: a block table says
where they lie. The softmax is online (Milakov and Gimelshein, 2018; FlashAttention, Dao et al.,
2022). Few sequences with long contexts are split over several programs, and the parts merged
(Flash-Decoding, Dao et al., 2023).

Shapes: q `[T, heads, head_dim]`; kv, one layer of the cache, `[num_blocks, 2, kv_heads,
block_size, head_dim]`; block tables `[R, max_blocks]`. Numbers are read in their own precision and
added up in float32. Names in capitals are known when a kernel is compiled: DIM is head_dim filled
up to a power of two, as shapes in Triton are. A pointer and a tensor of offsets, in numbers and
not in bytes, make a tensor of pointers; what a mask rules out is neither read nor written.
"""

from labkit.kernels.gpu.language import jit, tl

LOWEST = tl.constexpr(-1e30)  # below any score, and finite: -inf - -inf is no number
LOG2_E = tl.constexpr(1.4426950408889634)


@jit
def query_rows(
    token, num_tokens, kv_head, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr
):
    """Which query a row of this program is, as (tokens, lines, real), `[ROWS]` each.

    Row i is head i % GROUP of the GROUP query heads that share `kv_head`, of token
    `token + i // GROUP` of the flat batch. `lines` are the rows of head_dim in q where these
    queries lie. `real` (bool) are the rows of whole tokens among the first `num_tokens`; others
    only fill up the shape.
    """
    rows = tl.arange(0, ROWS)
    tokens = token + rows // GROUP
    lines = (tokens * KV_HEADS + kv_head) * GROUP + rows % GROUP
    real = (rows // GROUP < num_tokens) & (rows < ROWS // GROUP * GROUP)
    return tokens, lines, real


@jit
def load_lines(base, lines, there, HEAD_DIM: tl.constexpr, DIM: tl.constexpr):
    """The numbers of `lines` of HEAD_DIM from `base` on, `[len(lines), DIM]`; 0 for what is not
    `there`, where anything may stand, a NaN too."""
    dims = tl.arange(0, DIM)
    wanted = there[:, None] & (dims < HEAD_DIM)[None, :]
    return tl.load(base + lines[:, None] * HEAD_DIM + dims[None, :], mask=wanted, other=0.0)


@jit
def load_tile(
    kv, table, places, there, kv_head,
    KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, HEAD_DIM: tl.constexpr, DIM: tl.constexpr,
):  # fmt: skip
    """Keys and values of the tokens at `places` `[TILE]` of one sequence: `[TILE, DIM]` each.

    `table` points at its block table, `kv` at a layer `[num_blocks, 2, KV_HEADS, BLOCK_SIZE,
    HEAD_DIM]`: in each block all keys, head after head, and then all values. Tokens that are not
    `there` (bool) have no block: nothing is read for them, and their numbers are 0. A table may
    hold 32-bit numbers, and a layer more numbers than 32 bits can count. Tiles have its dtype.
    """
    blocks = tl.load(table + places // BLOCK_SIZE, mask=there, other=0).to(tl.int64)
    lines = (blocks * 2 * KV_HEADS + kv_head) * BLOCK_SIZE + places % BLOCK_SIZE
    keys = load_lines(kv, lines, there, HEAD_DIM, DIM)
    values = load_lines(kv, lines + KV_HEADS * BLOCK_SIZE, there, HEAD_DIM, DIM)
    return keys, values


@jit
def online_softmax(scores, values, most, total, acc):
    """Takes one tile more into account, and returns the new (most, total, acc).

    `scores` `[ROWS, TILE]` are logarithms to base 2, -inf where a query doesn't see a key;
    `values` `[TILE, DIM]`. So far `most` `[ROWS]` is the largest score, `total` `[ROWS]` the sum
    of the weights 2 ** (score - most), and `acc` `[ROWS, DIM]` the sum of the values with these
    weights, not divided yet. When a larger score comes, what was added up is scaled down. These
    three are float32, whatever `values` are.
    """
    largest = tl.maximum(most, tl.max(scores, axis=1))
    weights = tl.exp2(scores - largest[:, None])
    rescale = tl.exp2(most - largest)
    total = total * rescale + tl.sum(weights, axis=1)
    acc = acc * rescale[:, None]
    acc = tl.dot(weights.to(values.dtype), values, acc, input_precision="ieee")
    return largest, total, acc


@jit
def walk(
    query, kv, table, seen, begin, end, kv_head, scale, window,
    KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
    HEAD_DIM: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Attention of `query` `[ROWS, DIM]` to the tiles `begin` to `end` (exclusive) of a sequence.

    Tile t holds the tokens at places t * TILE and following. Row i sees the places up to its own,
    `seen[i]`, and of these the last `window`. Scores are query · key * scale, here to base 2
    (LOG2_E). What lies behind the last place that any row sees is not read; what no window reaches
    any more may be. Returns (most, total, acc) as `online_softmax`; they begin at LOWEST, 0 and 0.
    """
    most = tl.full([ROWS], LOWEST, tl.float32)
    total, acc = tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, DIM], tl.float32)
    last = tl.max(seen, axis=0)
    for tile in range(begin, end):
        places = tile * TILE + tl.arange(0, TILE)
        there = places <= last
        keys, values = load_tile(
            kv, table, places, there, kv_head, KV_HEADS, BLOCK_SIZE, HEAD_DIM, DIM
        )
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * (scale * LOG2_E)
        sees = (places[None, :] <= seen[:, None]) & (places[None, :] > seen[:, None] - window)
        scores = tl.where(sees, scores, float("-inf"))
        most, total, acc = online_softmax(scores, values, most, total, acc)
    return most, total, acc


@jit
def merge(most, total, acc):
    """One result `[DIM]`, float32, from the parts of a context: `most` and `total` `[PARTS]`,
    `acc` `[PARTS, DIM]`, as `walk` leaves them.

    A part that had nothing to see has a `most` of LOWEST and a `total` of 0, and counts for
    nothing.
    """
    largest = tl.max(most, axis=0)
    weights = tl.exp2(most - largest)
    total = tl.sum(total * weights, axis=0)
    acc = tl.sum(acc * weights[:, None], axis=0)
    return acc / total


@jit
def decode_kernel(
    q, kv, requests, tokens, positions, block_tables, out, maxima, totals, parts, max_blocks,
    scale, window,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Attention of requests with one new token each.

    Program (i, kv_head, split) computes the GROUP query heads of one kv head of request
    `requests[i]`, whose new token is row `tokens[i]` of q, over its part of the context. The heads
    are filled up to ROWS, since tensor cores work on 16 rows at a time. With one split it writes
    `out`; else maxima and totals `[n, heads, SPLITS]` and parts `[n, heads, SPLITS, HEAD_DIM]`, in
    float32, for `merge_kernel`.
    """
    i, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    request, token = tl.load(requests + i), tl.load(tokens + i)
    position = tl.load(positions + token).to(tl.int32)
    first, tiles = tl.maximum(position + 1 - window, 0) // TILE, position // TILE + 1
    each = tl.cdiv(tiles - first, SPLITS)
    begin = first + split * each
    _, lines, real = query_rows(token, 1, kv_head, KV_HEADS, GROUP, ROWS)
    query = load_lines(q, lines, real, HEAD_DIM, DIM)
    most, total, acc = walk(
        query, kv, block_tables + request * max_blocks, tl.zeros([ROWS], tl.int32) + position,
        begin, tl.minimum(begin + each, tiles), kv_head, scale, window,
        KV_HEADS, BLOCK_SIZE, TILE, HEAD_DIM, DIM, ROWS,
    )  # fmt: skip
    dims = tl.arange(0, DIM)
    wanted = real[:, None] & (dims < HEAD_DIM)[None, :]
    if SPLITS == 1:
        tl.store(out + lines[:, None] * HEAD_DIM + dims[None, :], acc / total[:, None], mask=wanted)
    else:
        head = (i * KV_HEADS + kv_head) * GROUP + tl.arange(0, ROWS)
        place = head * SPLITS + split
        tl.store(maxima + place, most, mask=real)
        tl.store(totals + place, total, mask=real)
        tl.store(parts + place[:, None] * HEAD_DIM + dims[None, :], acc, mask=wanted)


@jit
def merge_kernel(
    tokens, maxima, totals, parts, out,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DIM: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Program (i, head): one head of one request from its SPLITS parts, for row `tokens[i]` of out.

    SPLITS is a power of two.
    """
    i, head = tl.program_id(0), tl.program_id(1)
    place, dims = (i * HEADS + head) * SPLITS + tl.arange(0, SPLITS), tl.arange(0, DIM)
    acc = load_lines(parts, place, place >= 0, HEAD_DIM, DIM)
    result = merge(tl.load(maxima + place), tl.load(totals + place), acc)
    row = tl.load(tokens + i) * HEADS + head
    tl.store(out + row * HEAD_DIM + dims, result, mask=dims < HEAD_DIM)


@jit
def prefill_kernel(
    q, kv, block_tables, query_start, positions, tile_requests, tile_firsts, out, max_blocks,
    scale, window,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr, HEAD_DIM: tl.constexpr,
    DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Attention of several new tokens of requests in a flat batch, each after its own context.

    Program (tile, kv_head) computes ROWS // GROUP queries of request `tile_requests[tile]`, from
    its query `tile_firsts[tile]` on, for the GROUP heads of one kv head. Each query sees the
    tokens up to its own: causal.
    """
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    request, first = tl.load(tile_requests + tile), tl.load(tile_firsts + tile)
    begin, end = tl.load(query_start + request) + first, tl.load(query_start + request + 1)
    tokens, lines, real = query_rows(begin, end - begin, kv_head, KV_HEADS, GROUP, ROWS)
    query = load_lines(q, lines, real, HEAD_DIM, DIM)
    seen = tl.load(positions + tokens, mask=real, other=0).to(tl.int32)
    since = tl.maximum(tl.load(positions + begin).to(tl.int32) + 1 - window, 0)
    _, total, acc = walk(
        query, kv, block_tables + request * max_blocks, seen,
        since // TILE, tl.max(seen, axis=0) // TILE + 1, kv_head, scale, window,
        KV_HEADS, BLOCK_SIZE, TILE, HEAD_DIM, DIM, ROWS,
    )  # fmt: skip
    dims = tl.arange(0, DIM)
    wanted = real[:, None] & (dims < HEAD_DIM)[None, :]
    acc = acc / tl.where(real, total, 1.0)[:, None]
    tl.store(out + lines[:, None] * HEAD_DIM + dims[None, :], acc, mask=wanted)


@jit
def write_kernel(
    new, slot_mapping, kv,
    KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Puts the keys and values of one token, `[2 * KV_HEADS, HEAD_DIM]` of `new`, in their slot.

    WIDTH is 2 * KV_HEADS * HEAD_DIM filled up to a power of two.
    """
    token, numbers = tl.program_id(0), tl.arange(0, WIDTH)
    slot = tl.load(slot_mapping + token)
    wanted = numbers < 2 * KV_HEADS * HEAD_DIM
    values = tl.load(new + token.to(tl.int64) * 2 * KV_HEADS * HEAD_DIM + numbers, mask=wanted)
    line = (slot // BLOCK_SIZE * 2 * KV_HEADS + numbers // HEAD_DIM) * BLOCK_SIZE
    line += slot % BLOCK_SIZE
    tl.store(kv + line * HEAD_DIM + numbers % HEAD_DIM, values, mask=wanted)
