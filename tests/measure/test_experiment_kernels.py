"""Notebook 05's decoding on the NumPy twin: right in every way it is done, and counted."""

import numpy as np
import pytest

from labkit.kernels.gpu import twin
from labkit.measure.experiments import kernels
from labkit.workbook import cut, parts

PAGED = "labkit.kernels.gpu.paged"


@pytest.fixture(scope="module")
def paged():
    return twin.in_numpy(cut.module_from(PAGED, parts.module_source(PAGED)))


@pytest.fixture(scope="module")
def ways(paged):
    case = kernels.sequences([40, 70, 1], heads=6, kv_heads=2, head_dim=16)
    return {way.name: way for way in kernels.ways(paged, case, splits=2)}


def test_the_definition_is_what_notebook_04_computes():
    case = kernels.sequences([1, 16, 17, 40])
    np.testing.assert_allclose(kernels.by_reference(case), kernels.definition(case), atol=1e-5)


def test_every_way_gives_the_softmax(ways):
    assert len(ways) == 4
    assert all(way.error < 1e-5 for way in ways.values())


def test_bytes_are_those_that_arithmetic_says(ways):
    once = (40 + 70 + 1) * 2 * 2 * 16 * 4
    ends = 3 * 6 * 16 * 4
    gather, by_head, grouped, split = ways.values()
    assert (gather.kv, gather.copies, gather.ends) == (once, 2 * once, 2 * ends)
    assert (by_head.kv, by_head.copies) == (3 * once, 0)
    assert (grouped.kv, grouped.ends, grouped.parts) == (once, 2 * ends, 0)
    assert grouped.factor == 1.0
    assert (split.kv, split.ends) == (once, 3 * ends)  # each part reads the queries
    assert split.parts == 2 * 3 * 6 * 2 * (16 + 2) * 4  # written, then read


def test_the_model_of_a_split_counts_the_same_bytes(paged):
    """On a card with one multiprocessor of one byte a second, seconds are bytes."""
    case = kernels.sequences([64], heads=4, kv_heads=2, head_dim=16)
    for splits in (1, 2):
        done = kernels.decode(paged, case, splits)
        counted = done.moved("kv", "q", "out", "maxima", "totals", "parts")
        counted -= (splits - 1) * case.q.nbytes  # the queries of the second part: left out
        model = kernels.split_model(64, splits, 1.0, 1, 2, 2, 16, 4)
        assert model.seconds == counted


def test_more_programs_than_multiprocessors_are_no_faster():
    few, some, many = (kernels.split_model(10**6, n, 1e12, 16, 8) for n in (1, 2, 64))
    assert (few.programs, some.programs) == (8, 16)
    assert few.seconds == pytest.approx(2 * some.seconds, rel=1e-2)
    assert many.seconds > some.seconds


def test_reads_are_told_by_program_and_block(paged):
    case = kernels.sequences([20, 5], heads=2, kv_heads=1)
    found = kernels.reads(kernels.decode(paged, case).traces[0], case)
    first, second = case.tables[0, :2].tolist()
    assert found == {(0, 0, 0): {first: 16, second: 4}, (1, 0, 0): {int(case.tables[1, 0]): 5}}
