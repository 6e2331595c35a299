"""Notebook 04, from block tables to memory: `slots_of` and `PagedAttention.__call__`."""

from labkit.workbook.registry import Case, Exercise, Mistake


def _slots(block_table, start, end, block_size):
    def observe(part):
        found = part.slots_of(list(block_table), start, end, block_size)
        return {"slots": list(found) if isinstance(found, list | tuple) else repr(found)}

    return observe


def _slots_case(name, block_table, start, end, block_size, slots):
    """Drawn as the pool: a row for each block, and in each slot the position that goes there."""

    def pool(answer):
        num_blocks = max([*block_table, *(slot // block_size for slot in answer["slots"])]) + 1
        grid = [[0] * block_size for _ in range(num_blocks)]
        for position, slot in enumerate(answer["slots"], start):
            grid[slot // block_size][slot % block_size] = f"p{position}"
        return grid

    def draw(expected, found):
        from labkit.workbook import drawings

        name = "position in each slot of each block (0: empty)"
        return drawings.rows(pool(expected), pool(found), name=name)

    return Case(name, _slots(block_table, start, end, block_size), {"slots": slots}, draw)


SLOTS = Exercise(
    id="04.3",
    module="labkit.model.flat_batch",
    symbol="slots_of",
    core=False,
    minutes=15,
    difficulty=1,
    cases=(
        _slots_case("first_block", [0], 0, 3, 4, [0, 1, 2]),
        _slots_case("another_block", [2], 0, 3, 4, [8, 9, 10]),
        _slots_case("slots_of_one", [7, 2, 9], 0, 3, 1, [7, 2, 9]),
        _slots_case("two_blocks", [2, 0], 0, 6, 4, [8, 9, 10, 11, 0, 1]),
        _slots_case("last_of_a_block", [3, 1], 3, 4, 4, [15]),
        _slots_case("first_of_a_block", [3, 1], 4, 5, 4, [4]),
        _slots_case("next_chunk", [5, 0, 3], 2, 11, 4, [22, 23, 0, 1, 2, 3, 12, 13, 14]),
        _slots_case("nothing", [3], 2, 2, 4, []),
    ),
    mistakes=(
        Mistake("position_as_index", (("block_table[index]", "block_table[position]"),)),
        Mistake("no_table", (("block_table[index] * block_size", "index * block_size"),)),
        Mistake(
            "contiguous",
            (("block_table[index]", "block_table[0]"), ("+ offset", "+ position")),
        ),
        Mistake("offset_forgotten", ((" * block_size + offset", " * block_size"),)),
        Mistake("from_position_zero", (("range(start, end)", "range(end - start)"),)),
        Mistake("end_included", (("range(start, end)", "range(start, end + 1)"),)),
    ),
)


NUM_BLOCKS, BLOCK_SIZE = 6, 4
NAN = float("nan")


def _attend(tables, query_lens, context_lens, filled, stale=1.0, look_for=None):
    """Which slots each new token has read. Its query is 0, so it reads all it may alike; with
    `look_for` it wants what is in that slot, a slot for each new token."""

    def observe(part):
        import torch

        from labkit.workbook.fakes_paging import named_slots, paged_batch, slots_read

        kv = named_slots(NUM_BLOCKS, BLOCK_SIZE, filled, stale)
        q = torch.zeros(sum(query_lens), 2, kv.shape[-1])
        for token, slot in enumerate(look_for or ()):
            q[token, :, slot] = 1e3
        batch = paged_batch(BLOCK_SIZE, tables, query_lens, context_lens)
        out = part.PagedAttention(batch)(q, kv)
        return {"shape": list(out.shape), "slots read": slots_read(out)}

    return observe


def _like_q(part):
    """Four query heads over two kv heads in bfloat16; values of kv head j are j + 1."""
    import torch

    from labkit.workbook.fakes_paging import paged_batch

    q, kv = torch.zeros(1, 4, 2).bfloat16(), torch.zeros(2, 2, 2, 4, 2).bfloat16()
    kv[:, 1, 0], kv[:, 1, 1] = 1.0, 2.0
    before = kv.clone()
    out = part.PagedAttention(paged_batch(4, [[1]], [1], [3]))(q, kv)
    return {
        "dtype": str(out.dtype),
        "kv head of each head": (out[0, :, 0].float().round() - 1).tolist(),
        "kv changed": not kv.equal(before),
    }


def _reads(*slots):
    return {"shape": [len(slots), 2, NUM_BLOCKS * BLOCK_SIZE], "slots read": list(slots)}


def _draw_reads(expected, found):
    from labkit.workbook import drawings

    def slots(answer):  # a row for each new token
        return [[str(slot) for slot in read] for read in answer["slots read"]]

    return drawings.rows(slots(expected), slots(found), name="slots that each new token reads")


ATTENTION = Exercise(
    id="04.4",
    module="labkit.kernels.reference",
    symbol="PagedAttention.__call__",
    core=False,
    minutes=30,
    difficulty=3,
    cases=(
        Case(
            "one_token",
            _attend([[2]], [1], [1], [8]),
            _reads([8]),
            _draw_reads,
        ),
        Case(
            "a_prompt",
            _attend([[2]], [3], [3], [8, 9, 10]),
            _reads([8], [8, 9], [8, 9, 10]),
            _draw_reads,
        ),
        Case(
            "full_block",
            _attend([[2]], [1], [4], [8, 9, 10, 11]),
            _reads([8, 9, 10, 11]),
            _draw_reads,
        ),
        Case(
            "two_blocks",
            _attend([[3, 1]], [1], [5], [12, 13, 14, 15, 4]),
            _reads([4, 12, 13, 14, 15]),
            _draw_reads,
        ),
        Case(
            "second_chunk",
            _attend([[3, 1]], [2], [6], [12, 13, 14, 15, 4, 5]),
            _reads([4, 12, 13, 14, 15], [4, 5, 12, 13, 14, 15]),
            _draw_reads,
        ),
        Case(
            "two_requests",
            _attend([[1, 2], [4, 3]], [1, 1], [5, 8], [4, 5, 6, 7, 8, *range(12, 20)]),
            _reads([4, 5, 6, 7, 8], [12, 13, 14, 15, 16, 17, 18, 19]),
            _draw_reads,
        ),
        Case(
            "longer_row",  # the row is filled up with 0, and block 0 is somebody else's
            _attend([[5, 0], [0, 3]], [2, 1], [3, 6], [20, 21, 22, 0, 1, 2, 3, 12, 13]),
            _reads([20, 21], [20, 21, 22], [0, 1, 2, 3, 12, 13]),
            _draw_reads,
        ),
        Case(
            "looks_for",
            _attend(
                [[5, 0], [0, 3]], [2, 1], [3, 6], [20, 21, 22, 0, 1, 2, 3, 12, 13],
                look_for=[21, 20, 2],
            ),
            _reads([21], [20], [2]),
            _draw_reads,
        ),
        Case(
            "stale_nan",
            _attend([[2, 4]], [1], [6], [8, 9, 10, 11, 16, 17], stale=NAN),
            _reads([8, 9, 10, 11, 16, 17]),
            _draw_reads,
        ),
        Case(
            "like_q",
            _like_q,
            {
                "dtype": "torch.bfloat16",
                "kv head of each head": [0.0, 0.0, 1.0, 1.0],
                "kv changed": False,
            },
        ),
    ),
    mistakes=(
        Mistake(
            "whole_last_block",
            (
                (":num_blocks], context_len)", ":num_blocks], num_blocks * self.batch.block_size)"),
                ("context_len - (end - begin))", "own.shape[2] - (end - begin))"),
            ),
        ),
        Mistake(
            "padding_read",
            (
                (
                    "[r, :num_blocks], context_len)",
                    "[r], self.batch.block_tables.shape[1] * self.batch.block_size)",
                ),
                ("context_len - (end - begin))", "own.shape[2] - (end - begin))"),
            ),
        ),
        Mistake(
            "rounded_down",
            (
                ("-(-context_len // self", "(context_len // self"),
                ("context_len - (end - begin))", "own.shape[2] - (end - begin))"),
            ),
        ),
        Mistake("first_row_for_all", (("block_tables[r, ", "block_tables[0, "),)),
        Mistake("always_from_zero", (("context_len - (end - begin))", "0)"),)),
        Mistake("row_as_position", (("context_len - (end - begin))", "begin)"),)),
    ),
)

EXERCISES = (SLOTS, ATTENTION)
