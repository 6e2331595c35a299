"""The figures of notebook 04 say what the data say."""

from labkit.engine.blocks import BlockPool
from labkit.engine.books import Books
from labkit.measure.experiments.paging import FirstToken, PagingRun
from labkit.workbook.figures import paging
from labkit.workbook.figures.paging_story import pool_story
from labkit.workbook.figures.xray import judged


def is_png(picture):
    return picture._repr_png_()[0].startswith(b"\x89PNG")


def row(size, share):
    return {"block_size": size, "unused_mean": 0.0, "unused_share": share, "source": "counted"}


def test_empty_slots_are_told_for_rows_and_for_each_size():
    picture = paging.unused_figure(row(4096, 0.7), [row(8, 0.01), row(128, 0.06)])
    sizes = "1.0% in blocks of 8, 6.0% in blocks of 128"
    assert picture.story == f"Empty: 70.0% of rows of 4,096; {sizes}."
    assert is_png(picture)


def test_runs_in_one_memory_are_told_with_batch_speed_and_wait():
    runs = [
        PagingRun("rows", 4.0, 8, 40, 4, 0.8, (0.0, 2.0)),
        PagingRun("blocks", 2.0, 4, 40, 16, 0.1, (0.0, 0.0)),
    ]
    picture = paging.same_memory_figure(runs, {"rows": 1024, "blocks": 1024})
    assert "rows, 1,024 slots: 4 at once, 10 tokens/s, 1.00 s in line" in picture.story
    assert "blocks, 1,024 slots: 16 at once, 20 tokens/s, 0.00 s in line" in picture.story
    assert is_png(picture)


def test_the_formula_passes_through_what_was_counted():
    picture = paging.at_once_figure({40: 21, 1000: 1}, 1024, 16)
    assert picture.story == "40 tokens each: 21 at once; 1,000 tokens each: 1 at once."
    formula = dict(zip(*picture.axes[0].lines[0].get_data(), strict=True))
    assert formula[64] == 16  # 64 blocks, 4 for each
    assert formula[1024] == 1
    assert is_png(picture)


def test_first_tokens_are_told_with_what_was_computed():
    seen = [FirstToken("again", 0.25, 250, 224)]
    picture = paging.prefix_figure(seen)
    assert picture.story == "again: 250 ms, 26 of 250 prompt tokens computed."
    assert is_png(picture)


def test_the_story_of_a_pool_shares_a_prefix_and_ends_with_an_invalid_access():
    states = pool_story(BlockPool, Books)
    assert all(state.note for state in states)
    by_two = [s for s in states if any(len(names) > 1 for names in s.owners.values())]
    assert by_two
    assert any(state.cached for state in states)
    assert [state for state in states if state.bad] == states[-1:]
    assert "entry 6 of its block table" in judged(states[-1])[1]


def test_no_block_of_the_story_is_held_by_two_that_have_not_found_it():
    for state in pool_story(BlockPool, Books):
        for block, names in state.owners.items():
            assert len(names) == 1 or block in (0, 1)  # the blocks of the system prompt
