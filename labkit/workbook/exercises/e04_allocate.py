"""Notebook 04, blocks given out: `BlockPool.allocate`."""

from labkit.workbook.fakes_paging import draw_pool, pool_state
from labkit.workbook.registry import Case, Exercise, Mistake

CHECK = (
    "    if count > self.num_free:\n"
    '        raise OutOfBlocks(f"{count} blocks asked for, {self.num_free} free")\n'
)


def _allocate(*counts, free, holders=None, contents=None):
    """One holder after the other asks for so many blocks; what they get, and the pool after it."""

    def observe(part):
        from labkit.workbook.fakes_paging import pool_in, state_of

        pool, tables, refused = pool_in(part, free, holders or {}, contents), {}, []
        for name, count in zip("abc", counts, strict=False):
            try:
                blocks = pool.allocate(count)
                tables[name] = list(blocks) if isinstance(blocks, list | tuple) else [repr(blocks)]
            except part.OutOfBlocks:
                refused.append(name)
        return {**state_of(pool, tables), "refused": refused}

    return observe


def _there_and_back(part):
    """Two blocks are taken and given back, and one is taken: the other methods go on."""
    from labkit.workbook.fakes_paging import pool_in, state_of

    pool = pool_in(part, [0, 1, 2], {})
    first = list(pool.allocate(2))
    pool.free(first)
    return state_of(pool, {"a": first, "b": list(pool.allocate(1))})


def _state(tables, free, holders, contents=None, refused=()):
    return {**pool_state(tables, free, holders, contents), "refused": list(refused)}


ALLOCATE = Exercise(
    id="04.1",
    module="labkit.engine.blocks",
    symbol="BlockPool.allocate",
    core=True,
    minutes=20,
    difficulty=1,
    cases=(
        Case(
            "two_of_four",
            _allocate(2, free=[0, 1, 2, 3]),
            _state({"a": [0, 1]}, [2, 3], {0: 1, 1: 1}),
            draw_pool,
        ),
        Case(
            "none",
            _allocate(0, free=[0, 1]),
            _state({"a": []}, [0, 1], {}),
            draw_pool,
        ),
        Case(
            "next_holder",
            _allocate(2, 1, free=[0, 1, 2, 3]),
            _state({"a": [0, 1], "b": [2]}, [3], {0: 1, 1: 1, 2: 1}),
            draw_pool,
        ),
        Case(
            "the_last_block",
            _allocate(3, free=[0, 1, 2]),
            _state({"a": [0, 1, 2]}, [], {0: 1, 1: 1, 2: 1}),
            draw_pool,
        ),
        Case(
            "none_of_nothing",
            _allocate(3, 0, free=[0, 1, 2]),
            _state({"a": [0, 1, 2], "b": []}, [], {0: 1, 1: 1, 2: 1}),
            draw_pool,
        ),
        Case(
            "all_or_nothing",
            _allocate(3, 2, free=[1, 3], holders={0: 1, 2: 2}),
            _state({"b": [1, 3]}, [], {0: 1, 1: 1, 2: 2, 3: 1}, refused=["a"]),
            draw_pool,
        ),
        Case(
            "line_of_eviction",
            _allocate(2, free=[3, 0, 2], holders={1: 1}),
            _state({"a": [3, 0]}, [2], {0: 1, 1: 1, 3: 1}),
            draw_pool,
        ),
        Case(
            "contents_forgotten",
            _allocate(2, free=[2, 0, 1], contents={0: "hello", 1: "world"}),
            _state({"a": [2, 0]}, [1], {0: 1, 2: 1}, {1: "world"}),
            draw_pool,
        ),
        Case(
            "there_and_back",
            _there_and_back,
            pool_state({"a": [0, 1], "b": [0]}, [1, 2], {0: 1}),
            draw_pool,
        ),
    ),
    mistakes=(
        Mistake(
            "takes_what_is_left",
            (
                (CHECK, ""),
                ("range(count)", "range(min(count, self.num_free))"),
            ),
        ),
        Mistake(
            "noticed_half_way",
            (
                (CHECK, ""),
                (
                    "    for _ in range(count):\n",
                    "    for _ in range(count):\n"
                    "        if not self.free_blocks:\n"
                    '            raise OutOfBlocks(f"{count} blocks asked for")\n',
                ),
            ),
        ),
        Mistake("last_block_refused", (("count > self.num_free", "count >= self.num_free"),)),
        Mistake(
            "none_refused",
            (("count > self.num_free", "count > self.num_free or not self.free_blocks"),),
        ),
        Mistake("newest_evicted", (("last=False", "last=True"),)),
        Mistake("still_found", (("        self.forget(block_id)\n", ""),)),
        Mistake("nobody_holds_it", (("        self.ref_counts[block_id] = 1\n", ""),)),
    ),
)

EXERCISES = (ALLOCATE,)
