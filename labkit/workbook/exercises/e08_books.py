"""Notebook 08, swapping out: `Books.swap_out`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake


def _swap(held, computed, *, taken=0, host_taken=0, shared=(), swaps=0, before=()):
    """A request holds `held` blocks of 4 tokens, `computed` tokens are in them.

    `taken` and `host_taken` blocks belong to others; of its own, those in `shared` have a second
    holder. `before` is what the plan has to swap out already.
    """

    def observe(part):
        from labkit.engine.blocks import BlockPool
        from labkit.engine.plan import StepPlan
        from labkit.engine.request import Request

        pool, host = BlockPool(8, 4, False), BlockPool(8, 4, False)
        pool.allocate(taken)
        host.allocate(host_taken)
        request = Request("victim", [7] * 40, num_computed_tokens=computed, num_swaps=swaps)
        request.block_table = pool.allocate(held)
        pool.share(shared)
        plan = StepPlan(8, swap_out=[*before])
        part.Books(pool, host).swap_out(plan, request)
        used = pool.num_used
        pool.free([block for block in shared if pool.ref_counts[block]])  # its holder has ended
        return {
            "block table": list(request.block_table),
            "host blocks": list(request.host_blocks),
            "copies (from, to)": [list(pair) for pair in plan.swap_out],
            "blocks in use": used,
            "blocks in use when who shared has ended": pool.num_used,
            "host blocks in use": host.num_used,
            "computed tokens": request.num_computed_tokens,
            "swaps": request.num_swaps,
        }

    return observe


def _after(host_blocks, copies, used, on_host, computed, swaps=1, later=None):
    return {
        "block table": [], "host blocks": host_blocks, "copies (from, to)": copies,
        "blocks in use": used, "host blocks in use": on_host, "computed tokens": computed,
        "swaps": swaps,
        "blocks in use when who shared has ended": used if later is None else later,
    }  # fmt: skip


def _draw(expected, found):
    def tables(seen):
        columns = {"block table": seen["block table"], "host blocks": seen["host blocks"]}
        copies = seen["copies (from, to)"]
        sides = {"copied from": [a for a, _ in copies], "copied to": [b for _, b in copies]}
        return columns | sides

    return drawings.block_tables(tables(expected), tables(found))


SWAP_OUT = Exercise(
    id="08.3",
    module="labkit.engine.books",
    symbol="Books.swap_out",
    core=False,
    minutes=15,
    difficulty=2,
    cases=(
        Case("one_block", _swap(1, 4, taken=2), _after([0], [[2, 0]], 2, 1, 4), _draw),
        Case("half_full", _swap(2, 6), _after([0, 1], [[0, 0], [1, 1]], 0, 2, 6), _draw),
        # the third block was taken for a chunk that is not computed
        Case(
            "not_written", _swap(3, 7, taken=1), _after([0, 1], [[1, 0], [2, 1]], 1, 2, 7), _draw
        ),
        # so was the second here: the first is exactly full
        Case("full_and_one_ahead", _swap(2, 4), _after([0], [[0, 0]], 0, 1, 4), _draw),
        Case(
            "host_in_use",
            _swap(2, 8, taken=3, host_taken=3),
            _after([3, 4], [[3, 3], [4, 4]], 3, 5, 8),
            _draw,
        ),
        Case(
            "shared",
            _swap(2, 8, shared=(0,)),
            _after([0, 1], [[0, 0], [1, 1]], 1, 2, 8, later=0),
            _draw,
        ),
        Case(
            "second_victim",
            _swap(1, 3, taken=5, host_taken=2, swaps=1, before=((0, 0), (1, 1))),
            _after([2], [[0, 0], [1, 1], [5, 2]], 5, 3, 3, swaps=2),
            _draw,
        ),
    ),
    mistakes=(
        Mistake("unwritten_too", (
            ("self.pool.blocks_for(request.num_computed_tokens)", "len(request.block_table)"),
        )),
        Mistake("full_blocks_only", ((
            "self.pool.blocks_for(request.num_computed_tokens)",
            "request.num_computed_tokens // self.pool.block_size",
        ),)),
        Mistake("blocks_kept", (("    self.pool.free(request.block_table)\n", ""),)),
        Mistake("only_written_freed", (
            ("free(request.block_table)", "free(request.block_table[:num_blocks])"),
        )),
        Mistake("table_kept", (("    request.block_table = []", "    pass"),)),
        Mistake("computed_forgotten", (
            ("request.block_table = []", "request.block_table = []\n"
             "    request.num_computed_tokens = 0"),
        )),
        Mistake("other_victim_lost", (("plan.swap_out += zip(", "plan.swap_out = list(zip("),
                                      ("strict=False)", "strict=False))"))),
        Mistake("wrong_way", (
            ("zip(request.block_table, request.host_blocks,",
             "zip(request.host_blocks, request.block_table,"),
        )),
    ),
)  # fmt: skip

EXERCISES = (SWAP_OUT,)
