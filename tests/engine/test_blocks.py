"""The block pool: who holds a block, which is given out next, and what can be found again."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit.engine.blocks
from labkit.engine.blocks import BlockPool, OutOfBlocks, hash_block, root_hash

ROOT = root_hash("")


def cached(pool, names):
    """Takes a block for each of `names` and registers it under a hash made of the name."""
    blocks = pool.allocate(len(names))
    for block, name in zip(blocks, names, strict=True):
        pool.register(block, name.encode())
    return blocks


def test_every_block_is_free_or_held():
    pool = BlockPool(5, 4)
    assert (pool.num_free, pool.num_used) == (5, 0)
    blocks = pool.allocate(3)
    assert len(set(blocks)) == 3
    assert (pool.num_free, pool.num_used) == (2, 3)
    pool.free(blocks)
    assert (pool.num_free, pool.num_used) == (5, 0)


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 4), (4, 0), (-1, 4)])
def test_a_pool_that_holds_nothing_is_refused_with_both_numbers(num_blocks, block_size):
    with pytest.raises(ValueError, match=f"{num_blocks} blocks of {block_size} tokens"):
        BlockPool(num_blocks, block_size)


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_the_last_block_may_be_partly_empty(tokens, blocks):
    assert BlockPool(1, 4).blocks_for(tokens) == blocks


def test_out_of_blocks_takes_none_and_says_how_many_were_free():
    pool = BlockPool(3, 4)
    pool.allocate(1)
    with pytest.raises(OutOfBlocks, match="3 blocks asked for, 2 free"):
        pool.allocate(3)
    assert pool.num_free == 2
    assert len(pool.allocate(2)) == 2


def test_allocating_none_is_fine_even_from_a_full_pool():
    pool = BlockPool(1, 4)
    pool.allocate(1)
    assert pool.allocate(0) == []


def test_a_shared_block_is_free_after_its_last_holder():
    pool = BlockPool(2, 4)
    [block] = pool.allocate(1)
    pool.share([block])
    pool.free([block])
    assert pool.num_used == 1
    pool.free([block])
    assert pool.num_used == 0


def test_a_free_block_that_is_shared_is_not_given_out():
    pool = BlockPool(2, 4)
    [block] = cached(pool, "a")
    pool.free([block])
    pool.share([block])
    assert pool.num_used == 1
    assert pool.allocate(1) != [block]
    with pytest.raises(OutOfBlocks):
        pool.allocate(1)


def test_freeing_twice_is_refused():
    pool = BlockPool(2, 4)
    [block] = pool.allocate(1)
    pool.free([block])
    with pytest.raises(ValueError, match=f"block {block} is free already"):
        pool.free([block])
    assert pool.num_free == 2


def test_num_free_in_counts_those_that_sharing_would_take():
    pool = BlockPool(4, 4)
    held, freed = pool.allocate(1), pool.allocate(2)
    pool.free(freed)
    assert pool.num_free_in(held + freed) == 2


def test_find_gives_the_longest_prefix_that_is_there_free_or_held():
    pool = BlockPool(4, 4)
    a, b, c = cached(pool, "abc")
    pool.free([a])
    assert pool.find([b"a", b"b", b"x", b"c"]) == [a, b]
    assert pool.find([b"x", b"a"]) == []
    assert pool.find([]) == []


def test_a_block_that_is_given_out_again_can_not_be_found():
    pool = BlockPool(1, 4)
    pool.free(cached(pool, "a"))
    pool.allocate(1)
    assert pool.find([b"a"]) == []


def test_the_first_block_with_a_hash_stays_the_one():
    pool = BlockPool(2, 4)
    first, second = pool.allocate(2)
    pool.register(first, b"a")
    pool.register(second, b"a")
    assert pool.find([b"a"]) == [first]
    pool.free([second])
    pool.allocate(1)  # the second is used again: that is no loss for the first
    assert pool.find([b"a"]) == [first]


def test_a_block_has_one_hash():
    pool = BlockPool(1, 4)
    [block] = pool.allocate(1)
    pool.register(block, b"old")
    pool.register(block, b"new")
    assert pool.find([b"old"]) == []
    assert pool.find([b"new"]) == [block]


def test_nothing_is_found_without_prefix_caching():
    pool = BlockPool(2, 4, prefix_caching=False)
    cached(pool, "a")
    assert pool.find([b"a"]) == []


def test_a_cleared_cache_finds_nothing_and_takes_no_block_from_its_holder():
    pool = BlockPool(3, 4)
    a, b = cached(pool, "ab")
    pool.free([b])
    pool.clear_cache()
    assert pool.find([b"a"]) == pool.find([b"b"]) == []
    assert pool.num_used == 1
    pool.register(a, b"a")
    assert pool.find([b"a"]) == [a]


def test_a_block_without_contents_is_evicted_before_a_cached_one():
    pool = BlockPool(3, 4)
    [kept] = cached(pool, "a")
    [other] = pool.allocate(1)
    pool.free([kept])
    pool.free([other])  # later, and yet it goes first
    assert set(pool.allocate(2)).isdisjoint([kept])
    assert pool.find([b"a"]) == [kept]


def test_the_least_recently_freed_is_evicted_first():
    pool = BlockPool(3, 4)
    a, b, c = cached(pool, "abc")
    for block in (b, c, a):
        pool.free([block])
    assert [pool.allocate(1) for _ in range(3)] == [[b], [c], [a]]


def test_use_makes_a_cached_block_recent():
    pool = BlockPool(2, 4)
    a, b = cached(pool, "ab")
    pool.free([a])
    pool.free([b])
    pool.share([a])
    pool.free([a])
    assert pool.allocate(1) == [b]


def test_the_tail_of_a_sequence_is_evicted_before_its_head():
    pool = BlockPool(5, 4)
    first, second = cached(pool, "ab"), cached(pool, "xyz")
    pool.free(first)
    pool.free(second)
    assert pool.allocate(5) == first[::-1] + second[::-1]


def test_equal_tokens_after_different_beginnings_are_different_blocks():
    one, other = hash_block(ROOT, [1, 2]), hash_block(ROOT, [2, 1])
    assert one != other
    assert hash_block(one, [7, 8]) != hash_block(other, [7, 8])
    assert hash_block(one, [7, 8]) == hash_block(hash_block(root_hash(""), [1, 2]), [7, 8])


def test_a_salt_separates_even_the_first_block():
    assert hash_block(root_hash("alice"), [1, 2]) != hash_block(root_hash("bob"), [1, 2])
    assert root_hash("") != root_hash("\0")


def test_any_text_is_a_salt():
    """JSON can carry half of a surrogate pair; it must not stop the engine."""
    assert len({root_hash(salt) for salt in ["", "é", "소금", "\ud800", "\udfff"]}) == 5


# Case 27. Pairs that are equal for a hash that somebody has used, or might.
WEAK = {
    "Python's hash of -1 and -2": ([-1, 5], [-2, 5], hash),
    "Python's hash modulo 2**61 - 1": ([2**61 - 1, 5], [0, 5], hash),
    "sum": ([1, 4], [2, 3], sum),
    "exclusive or": ([6, 1], [5, 2], lambda tokens: tokens[0] ^ tokens[1]),
    "digits joined": ([1, 23], [12, 3], lambda tokens: "".join(map(str, tokens))),
    "low bytes": ([256, 1], [0, 257], lambda tokens: bytes(t % 256 for t in [0, tokens[1]])),
    "sorted": ([1, 2], [2, 1], lambda tokens: tuple(sorted(tokens))),
}


@pytest.mark.parametrize("name", WEAK)
def test_prefixes_that_collide_in_a_weak_hash_do_not_share(name):
    one, other, weak = WEAK[name]
    assert weak(tuple(one)) == weak(tuple(other))
    pool = BlockPool(2, 2)
    [block] = pool.allocate(1)
    pool.register(block, hash_block(ROOT, one))
    assert pool.find([hash_block(ROOT, other)]) == []
    assert hash_block(hash_block(ROOT, one), [1, 1]) != hash_block(hash_block(ROOT, other), [1, 1])


@given(
    st.lists(st.integers(0, 3), min_size=4, max_size=8),
    st.lists(st.integers(0, 3), min_size=4, max_size=8),
)
@settings(max_examples=100, deadline=None)
def test_one_hash_means_one_text(one, other):
    def last_hash(tokens):
        parent = ROOT
        for start in range(0, len(tokens) - 1, 2):
            parent = hash_block(parent, tokens[start : start + 2])
        return parent

    one, other = one[: len(one) // 2 * 2], other[: len(other) // 2 * 2]
    assert (last_hash(one) == last_hash(other)) == (one == other)


def lines_run(work):
    """How many lines of blocks.py `work` runs."""
    count, before = 0, sys.gettrace()

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename != labkit.engine.blocks.__file__:
            return None
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_no_operation_takes_longer_in_a_large_pool():
    def life_of_three(pool):
        blocks = cached(pool, "abc")
        pool.share(blocks)
        pool.free(blocks)
        pool.free(blocks)
        pool.share(pool.find([b"a", b"b"]))
        pool.free(blocks[:2])

    small, large = BlockPool(8, 4), BlockPool(8000, 4)
    cost = lines_run(lambda: life_of_three(small))
    assert 0 < cost == lines_run(lambda: life_of_three(large))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_pool_is_a_count_of_holders(data):
    """Against the plainest model: a list of block tables, and the order of eviction by hand."""
    pool = BlockPool(data.draw(st.integers(1, 6)), 1, data.draw(st.booleans()))
    tables, names = [], 0
    for _ in range(data.draw(st.integers(1, 30))):
        what = data.draw(st.sampled_from(["allocate", "free", "share", "register"]))
        if what == "allocate":
            count = data.draw(st.integers(0, 4))
            free = list(pool.free_blocks)
            if count > len(free):
                with pytest.raises(OutOfBlocks):
                    pool.allocate(count)
            else:
                tables.append(pool.allocate(count))
                assert tables[-1] == free[:count]
                assert all(pool.hash_of[block] is None for block in tables[-1])
        elif what == "free" and tables:
            pool.free(tables.pop(data.draw(st.integers(0, len(tables) - 1))))
        elif what == "share":
            table = pool.find(data.draw(st.permutations(sorted(pool.block_of))))
            pool.share(table)
            tables.append(table)
        elif what == "register" and tables and tables[-1]:
            names += 1
            pool.register(tables[-1][-1], b"%d" % names)
        held = [block for table in tables for block in table]
        assert pool.ref_counts == [held.count(block) for block in range(pool.num_blocks)]
        assert set(pool.free_blocks) == set(range(pool.num_blocks)) - set(held)
        assert pool.num_free + pool.num_used == pool.num_blocks
        assert {block: h for h, block in pool.block_of.items()} == {
            block: h for block, h in enumerate(pool.hash_of) if h is not None
        }
        hashed = [pool.hash_of[block] is not None for block in pool.free_blocks]
        assert hashed == sorted(hashed)  # those that can't be found again go first
