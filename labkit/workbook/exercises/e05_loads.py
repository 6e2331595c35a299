"""Notebook 05, one block: `load_tile`."""

from labkit.workbook.fakes_kernels import OTHERS, draw_tile
from labkit.workbook.registry import Case, Exercise, Mistake

HERE = [True] * 4


def _load(tables, places, there, *, num_blocks=6, kv_heads=1, block_size=4, head_dim=1,
          written=None, dtype="float32", **options):  # fmt: skip
    def observe(part):
        from labkit.workbook.fakes_kernels import named_pool, read_tile

        kv = named_pool(num_blocks, kv_heads, block_size, head_dim, written, dtype)
        return read_tile(part, kv, tables, places, there, **options)

    return observe


def _load_huge(block):
    """A token of a pool of 140,000 blocks of 8 kv heads, 16 tokens, 128 numbers: 64 KiB each."""

    def observe(part):
        from labkit.workbook.fakes_kernels import HugePool, read_tile

        found = read_tile(part, HugePool((140_000, 2, 8, 16, 128)), [[block]], [3], [True])
        if "out of bounds" in found:
            return found
        keys, values = found["keys"][0], found["values"][0]
        return {"block of the keys": keys[0], "block of the values": values[-1]}

    return observe


def _tile(keys, reads, num_bytes, dtype="float32"):
    """What is expected: `keys` by their names, 0 for what isn't there; a value is half more."""
    values = [key + 0.5 if key is not None else 0.0 for key in keys]
    return {
        "keys": [[float(key or 0)] for key in keys],
        "values": [[value] for value in values],
        "dtypes": [dtype] * 2,
        OTHERS: [],
        "reads": {"0": reads},
        "bytes read": num_bytes,
    }


LOAD = Exercise(
    id="05.2",
    module="labkit.kernels.gpu.paged",
    symbol="load_tile",
    core=False,
    minutes=30,
    difficulty=2,
    cases=(
        Case("one_token", _load([[0]], [0], [True]), _tile([0], {"0": "0"}, 8), draw_tile),
        Case(
            "in_order",
            _load([[0, 1]], [*range(8)], [True] * 8),
            _tile([0, 1, 2, 3, 100, 101, 102, 103], {"0": "0-3", "1": "0-3"}, 64),
            draw_tile,
        ),
        Case(
            "blocks_of_one",
            _load([[4, 2]], [0, 1], [True] * 2, block_size=1),
            _tile([400, 200], {"2": "0", "4": "0"}, 16),
            draw_tile,
        ),
        Case(
            "shuffled",
            _load([[5, 2]], [*range(8)], [True] * 8),
            _tile([500, 501, 502, 503, 200, 201, 202, 203], {"2": "0-3", "5": "0-3"}, 64),
            draw_tile,
        ),
        Case(
            "inside_a_block",
            _load([[5, 2]], [12, 13, 14, 15], HERE, block_size=8),
            _tile([204, 205, 206, 207], {"2": "4-7"}, 32),
            draw_tile,
        ),
        Case(
            "kv_heads",
            _load([[5, 2]], [4, 5, 6, 7], HERE, kv_heads=3, kv_head=1),
            _tile([210, 211, 212, 213], {"2": "h1 0-3"}, 32),
            draw_tile,
        ),
        Case(
            "odd_head_size",
            _load([[3]], [0, 1, 2, 3], HERE, head_dim=3, dim=4),
            {
                "keys": [[300.0 + slot] * 3 + [0.0] for slot in range(4)],
                "values": [[300.5 + slot] * 3 + [0.0] for slot in range(4)],
                "dtypes": ["float32"] * 2,
                OTHERS: [],
                "reads": {"0": {"3": "0-3"}},
                "bytes read": 96,
            },
            draw_tile,
        ),
        Case(
            "stale_nan",
            _load([[5, 2]], [4, 5, 6, 7], [True, True, False, False], written={2: 2}),
            _tile([200, 201, None, None], {"2": "0-1"}, 16),
            draw_tile,
        ),
        Case(
            "next_row",  # the tile is longer than the table; what follows is another request's
            _load([[5], [2]], [*range(8)], [True] * 3 + [False] * 5, written={5: 3}),
            _tile([500, 501, 502] + [None] * 5, {"5": "0-2"}, 24),
            draw_tile,
        ),
        Case(
            "last_row",
            _load([[5], [2]], [*range(8)], [True] * 4 + [False] * 4, row=1),
            _tile([200, 201, 202, 203] + [None] * 4, {"2": "0-3"}, 32),
            draw_tile,
        ),
        Case(
            "half_precision",
            _load([[5, 2]], [4, 5, 6, 7], [True, True, False, False], dtype="float16"),
            _tile([200, 201, None, None], {"2": "0-1"}, 8, "float16"),
            draw_tile,
        ),
        Case(
            "large_pool",
            _load_huge(65_536),
            {"block of the keys": 65536.0, "block of the values": 65536.0},
        ),
        Case(
            "larger_pool",
            _load_huge(131_073),
            {"block of the keys": 131073.0, "block of the values": 131073.0},
        ),
    ),
    mistakes=(
        Mistake(
            "no_table",
            (
                (
                    "tl.load(table + places // BLOCK_SIZE, mask=there, other=0).to(tl.int64)",
                    "places // BLOCK_SIZE",
                ),
            ),
        ),
        Mistake("offset_forgotten", (("BLOCK_SIZE + places % BLOCK_SIZE", "BLOCK_SIZE"),)),
        Mistake("values_at_the_keys", (("lines + KV_HEADS * BLOCK_SIZE, there", "lines, there"),)),
        Mistake(
            "values_after_each_head", (("lines + KV_HEADS * BLOCK_SIZE", "lines + BLOCK_SIZE"),)
        ),
        Mistake(
            "heads_inside_tokens",
            (
                (
                    "(blocks * 2 * KV_HEADS + kv_head) * BLOCK_SIZE + places % BLOCK_SIZE",
                    "(blocks * 2 * BLOCK_SIZE + places % BLOCK_SIZE) * KV_HEADS + kv_head",
                ),
            ),
        ),
        Mistake("head_forgotten", (("blocks * 2 * KV_HEADS + kv_head", "blocks * 2 * KV_HEADS"),)),
        Mistake(
            "free_slots_read",
            (
                ("places // BLOCK_SIZE, mask=there, other=0", "places // BLOCK_SIZE"),
                ("(kv, lines, there,", "(kv, lines, places >= 0,"),
                ("BLOCK_SIZE, there, HEAD_DIM", "BLOCK_SIZE, places >= 0, HEAD_DIM"),
            ),
        ),
        Mistake(
            "table_unmasked",
            (("places // BLOCK_SIZE, mask=there, other=0", "places // BLOCK_SIZE"),),
        ),
        Mistake("thirty_two_bits", ((".to(tl.int64)", ""),)),
    ),
)

EXERCISES = (LOAD,)
