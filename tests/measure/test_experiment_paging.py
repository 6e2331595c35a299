"""Notebook 04's experiments: slots counted, batches driven, first tokens, a weak hash."""

import pytest

from labkit.engine.blocks import BlockPool
from labkit.engine.books import Books
from labkit.engine.cached import CachedEngine
from labkit.engine.continuous import ContinuousEngine
from labkit.engine.paged import PagedEngine
from labkit.engine.request import Request
from labkit.measure.bench.slots import by_arithmetic, stored
from labkit.measure.experiments import paging, weak_hash
from labkit.model import load_decoder


@pytest.fixture(scope="module")
def decoder():
    return load_decoder("tiny").model


def test_conversations_fit_and_are_the_same_every_time():
    lengths = paging.conversations(50)
    assert len(lengths) == 50
    assert lengths == paging.conversations(50)
    assert max(map(sum, lengths)) <= paging.LONGEST


def test_shrunk_conversations_keep_a_token_each_way():
    assert min(min(pair) for pair in paging.conversations(50, shrink=1000)) == 1


def test_a_row_is_reserved_whole():
    assert paging.unused_by_rows([(10, 7)], row_length=32)["unused_share"] == 0.5  # 16 filled


@pytest.mark.parametrize("size", [8, 16, 128])
def test_blocks_counted_in_a_scheduler_are_those_of_arithmetic(size):
    lengths = paging.conversations(12, shrink=8)
    pool = BlockPool(8192 // size, size, prefix_caching=False)
    [by_formula] = by_arithmetic([stored(*pair) for pair in lengths], [size])
    counted = paging.unused_by_blocks(pool, lengths)
    assert counted["unused_share"] == pytest.approx(by_formula["unused_share"])
    assert counted["source"] == "counted"
    assert pool.num_used == 0


def test_a_run_counts_steps_tokens_and_empty_slots(decoder):
    rows = CachedEngine(decoder, (), batch_size=1, max_model_len=8)
    run = paging.drive("rows", rows, [Request("a", [1, 2, 3, 4], max_tokens=2)])
    assert (run.num_steps, run.num_tokens, run.most_running) == (2, 2, 1)
    assert run.unused_share == 0.5  # 4 of 8 slots after the first step, none held after the last
    assert run.queue_s[0] < run.seconds


def test_blocks_hold_only_what_is_filled(decoder):
    blocks = PagedEngine(decoder, (), num_blocks=4, block_size=4)
    requests = [Request(name, [1, 2, 3, 4], max_tokens=2) for name in "ab"]
    run = paging.drive("blocks", blocks, requests)
    assert (run.most_running, run.unused_share) == (2, 0.0)


def test_a_small_pool_makes_requests_wait_in_line(decoder):
    small = PagedEngine(decoder, (), num_blocks=2, block_size=4)
    requests = [Request(name, [1, 2, 3, 4], max_tokens=2) for name in "ab"]
    run = paging.drive("small", small, requests)
    assert run.most_running == 1
    assert run.queue_s[1] > run.queue_s[0]


def test_the_second_of_two_equal_beginnings_computes_the_rest_only(decoder):
    engine = ContinuousEngine(decoder, (), num_blocks=8, block_size=4)
    beginning = [7, 8, 9, 10, 11, 12, 13, 14]
    first = paging.first_token("a", engine, Request("a", [*beginning, 1], max_tokens=2))
    second = paging.first_token("b", engine, Request("b", [*beginning, 2], max_tokens=2))
    assert (first.num_computed, second.num_computed) == (9, 1)
    assert second.ttft > 0


def test_a_twin_has_other_tokens_and_the_same_polynomial_hash():
    tokens = [5, 200, 30, 0, 250, 17, 9]
    twin = weak_hash.twin(tokens, vocab=259)
    assert twin != tokens
    assert len(twin) == len(tokens)
    assert all(0 <= token < 259 for token in twin)
    assert weak_hash.polynomial_hash(0, twin) == weak_hash.polynomial_hash(0, tokens)


@pytest.mark.parametrize(("books", "found"), [(weak_hash.WeakBooks, 4), (Books, 0)])
def test_only_the_weak_hash_gives_a_stranger_the_block(decoder, books, found):
    engine = ContinuousEngine(decoder, (), num_blocks=8, block_size=4)
    engine.scheduler.books = books(engine.scheduler.pool)
    secret = [50, 60, 70, 80]
    paging.first_token("alice", engine, Request("alice", [*secret, 1], max_tokens=1))
    forged = Request("stranger", [*weak_hash.twin(secret, 259), 1], max_tokens=1)
    paging.first_token("stranger", engine, forged)
    assert forged.num_cached_tokens == found
