"""Notebook 04, blocks taken back: `BlockPool.free`."""

from labkit.workbook.fakes_paging import LINE, draw_pool, pool_state
from labkit.workbook.registry import Case, Exercise, Mistake


def _free(*tables, free, holders, contents=None):
    """Block tables are given up one after the other; the pool after it."""

    def observe(part):
        from labkit.workbook.fakes_paging import pool_in, state_of

        pool = pool_in(part, free, holders, contents)
        for table in tables:
            pool.free(list(table))
        return state_of(pool, {})

    return observe


def _table_kept(part):
    from labkit.workbook.fakes_paging import pool_in

    table = [0, 1]
    pool_in(part, [], {0: 1, 1: 1}).free(table)
    return table


def _taken_again(part):
    from labkit.workbook.fakes_paging import pool_in, state_of

    pool = pool_in(part, [2], {0: 1, 1: 1})
    pool.free([0, 1])
    return state_of(pool, {"b": list(pool.allocate(2))})


def _free_twice(*tables, held):
    """Frees a block once too often. What is left in the pool after the error doesn't matter."""

    def observe(part):
        from labkit.workbook.fakes_paging import pool_in

        pool = pool_in(part, [1, 2], {0: held})
        for number, table in enumerate(tables, 1):
            try:
                pool.free(list(table))
            except ValueError:
                return {"refused call": number, "block tables": {}, LINE: list(pool.free_blocks)}
        return {"refused call": "none", "block tables": {}, LINE: list(pool.free_blocks)}

    return observe


FREE = Exercise(
    id="04.2",
    module="labkit.engine.blocks",
    symbol="BlockPool.free",
    core=True,
    minutes=25,
    difficulty=2,
    cases=(
        Case(
            "one_block",
            _free([0], free=[], holders={0: 1}),
            pool_state({}, [0], {}),
            draw_pool,
        ),
        Case(
            "shared_block",
            _free([0], free=[1], holders={0: 2}),
            pool_state({}, [1], {0: 1}),
            draw_pool,
        ),
        Case(
            "last_holder",
            _free([0], [0], free=[1], holders={0: 2}, contents={0: "hello"}),
            pool_state({}, [1, 0], {}, {0: "hello"}),
            draw_pool,
        ),
        Case(
            "shared_beginning",
            _free([0, 1, 2], free=[3], holders={0: 2, 1: 2, 2: 1}),
            pool_state({}, [2, 3], {0: 1, 1: 1}),
            draw_pool,
        ),
        Case(
            "cached_sequence",
            _free([4, 1, 3], free=[0, 2], holders={1: 1, 3: 1, 4: 1}, contents={
                4: "you are", 1: "a helpful", 3: "assistant",
            }),
            pool_state({}, [0, 2, 3, 1, 4], {}, {1: "a helpful", 3: "assistant", 4: "you are"}),
            draw_pool,
        ),
        Case(
            "nothing_to_find",
            _free([2, 0], free=[3, 1], holders={0: 1, 2: 1}, contents={3: "old", 1: "older"}),
            pool_state({}, [2, 0, 3, 1], {}, {1: "older", 3: "old"}),
            draw_pool,
        ),
        Case(
            "partly_filled_end",
            _free([0, 3, 2], free=[4, 1], holders={0: 1, 3: 1, 2: 1}, contents={
                0: "you are", 3: "a helpful", 4: "old",
            }),
            pool_state({}, [2, 4, 1, 3, 0], {}, {0: "you are", 3: "a helpful", 4: "old"}),
            draw_pool,
        ),
        Case(
            "freed_twice",
            _free_twice([0], [0], held=1),
            {"refused call": 2, "block tables": {}, LINE: [0, 1, 2]},
            draw_pool,
        ),
        Case(
            "twice_in_one_table",
            lambda part: _free_twice([0, 0], held=1)(part)["refused call"],
            1,
        ),
        Case("table_kept", _table_kept, [0, 1]),
        Case(
            "taken_again",
            _taken_again,
            pool_state({"b": [0, 1]}, [2], {0: 1, 1: 1}),
            draw_pool,
        ),
    ),
    mistakes=(
        Mistake("holders_ignored", (("ref_counts[block_id] -= 1", "ref_counts[block_id] = 0"),)),
        Mistake(
            "stops_at_shared",
            (
                (
                    "        if self.ref_counts[block_id] == 0:\n            self.free_blocks[",
                    "        if self.ref_counts[block_id] > 0:\n            break\n"
                    "        if self.ref_counts[block_id] == 0:\n            self.free_blocks[",
                ),
            ),
        ),
        Mistake(
            "table_emptied",
            (
                (
                    "    for block_id in reversed(block_ids):\n",
                    "    while block_ids:\n        block_id = block_ids.pop()\n",
                ),
            ),
        ),
        Mistake("front_first", (("reversed(block_ids)", "block_ids"),)),
        Mistake(
            "double_free_accepted",
            (
                (
                    '            raise ValueError(f"block {block_id} is free already; '
                    'nobody holds it")\n',
                    "            continue\n",
                ),
            ),
        ),
        Mistake("all_at_the_end", (("if self.hash_of[block_id] is None:", "if False:"),)),
        Mistake("all_at_the_head", (("if self.hash_of[block_id] is None:", "if True:"),)),
        Mistake(
            "contents_forgotten",
            (
                (
                    "            self.free_blocks[block_id] = None\n",
                    "            self.forget(block_id)\n"
                    "            self.free_blocks[block_id] = None\n",
                ),
            ),
        ),
    ),
)

EXERCISES = (FREE,)
