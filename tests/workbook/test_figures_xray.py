"""The X-ray of a block pool: what it counts, and what it says of a wrong access."""

import pytest

from labkit.engine.blocks import BlockPool
from labkit.engine.request import Request
from labkit.workbook.figures.xray import XRay, judged, labels_of, story_of, xray_figure, xray_of

TABLES, LENGTHS = {"a": (0, 1, 2), "b": (0, 4)}, {"a": 10, "b": 5}


def xray(**fields) -> XRay:
    return XRay(**{"block_size": 4, "num_blocks": 6, "tables": TABLES, "lengths": LENGTHS} | fields)


def test_owners_and_how_full_blocks_are():
    assert xray().owners == {0: ["a", "b"], 1: ["a"], 2: ["a"], 4: ["b"]}
    assert xray().fills == {0: 4, 1: 4, 2: 2, 4: 1}


def test_the_story_counts_empty_slots_shared_and_cached_blocks():
    assert story_of(xray(cached={5, 1}, note="b arrives.")) == (
        "b arrives. 2 requests hold 4 of 6 blocks. 5 of their 16 slots are empty (31%). "
        "Block 0 is shared. 1 free block can still be found (cached)."
    )
    assert story_of(xray(tables={}, lengths={})) == "0 requests hold 0 of 6 blocks."


@pytest.mark.parametrize(
    "bad, tables, hit, said",
    [
        (("a", 12), TABLES, None, "entry 3 of its block table, which has 3 blocks, room for 12"),
        (("c", 0), TABLES, None, "which has 0 blocks"),
        (("a", -1), TABLES, None, "a negative position"),
        (("b", 2), TABLES, 0, "slot 2 of block 0, which a holds too"),
        (("a", 11), TABLES, 2, "slot 3 of block 2, and only tokens 0 to 9 are written"),
        (("a", 9), TABLES, 2, "slot 1 of block 2."),
        (("a", 1), {"a": (7,)}, None, "block 7, and the pool has blocks 0 to 5"),
    ],
)
def test_an_invalid_access_is_explained(bad, tables, hit, said):
    state = xray(bad=bad, tables=tables)
    block, words = judged(state)
    assert block == hit and said in words
    assert words in story_of(state)
    assert xray_figure(state, "t")._repr_png_()[0].startswith(b"\x89PNG")


def test_the_xray_of_a_pool_shows_its_requests_and_what_is_cached():
    pool = BlockPool(4, 4)
    one, gone = Request("one", [1] * 6), Request("gone", [1] * 4)
    one.block_table, one.num_computed_tokens = pool.allocate(2), 6
    [block] = pool.allocate(1)
    pool.register(block, b"hash")
    pool.free([block])
    state = xray_of(pool, [one, gone], note="gone has ended.")
    assert state == XRay(
        4, 4, {"one": (0, 1), "gone": ()}, {"one": 6, "gone": 0}, frozenset({2}), None,
        "gone has ended.",
    )  # fmt: skip
    one.block_table.append(3)
    assert state.tables["one"] == (0, 1)  # a moment, not the request itself


def test_long_names_become_numbers():
    assert labels_of(["a", "chat-1", "b12"]) == {"a": "a", "chat-1": "2", "b12": "b12"}


@pytest.mark.parametrize("num_blocks", [1, 24, 60, 300])
def test_a_pool_of_any_size_is_a_picture(num_blocks):
    tables = {f"request-{i}": tuple(range(i, num_blocks, 20)) for i in range(15)}
    state = xray(num_blocks=num_blocks, tables=tables, lengths={"request-0": 3})
    assert xray_figure(state, "t")._repr_png_()[0].startswith(b"\x89PNG")
