"""The search for the highest rate that meets an SLO, with what a rate gives made up."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.measure.capacity import Trial, capacity, confirmed, interval


def test_it_doubles_and_then_halves_the_ratio():
    found = capacity(lambda rate: rate <= 10, 1.0, 100.0, tolerance=0.5)
    doubling = [(1.0, True), (2.0, True), (4.0, True), (8.0, True), (16.0, False)]
    assert found.trials == (*doubling, (math.sqrt(128), False))
    assert found.rate == 8.0 and found.fails_at == math.sqrt(128)


def test_low_fails_so_there_is_no_capacity():
    found = capacity(lambda rate: False, 2.0, 8.0)
    assert (found.rate, found.fails_at, found.trials) == (0.0, 2.0, (Trial(2.0, False),))


def test_what_meets_the_slo_at_the_highest_rate_has_no_edge_below_it():
    found = capacity(lambda rate: True, 1.0, 5.0)
    assert [trial.rate for trial in found.trials] == [1.0, 2.0, 4.0, 5.0]
    assert found.rate == 5.0 and found.fails_at is None
    assert capacity(lambda rate: True, 3.0, 3.0).trials == ((3.0, True),)


@given(st.floats(0.01, 1e4), st.floats(0.02, 10), st.floats(1, 1e4), st.floats(0.01, 1))
def test_the_edge_lies_between_what_it_found(edge, low, factor, tolerance):
    high = low * factor
    found = capacity(lambda rate: rate <= edge, low, high, tolerance)
    rates = [trial.rate for trial in found.trials]
    assert len({*rates}) == len(rates) and all(low <= rate <= high for rate in rates)
    assert len(rates) <= 2 + math.log2(factor) + math.log2(1 / math.log2(1 + tolerance)) + 2
    if edge < low:
        assert found.rate == 0.0
    elif edge >= high:
        assert (found.rate, found.fails_at) == (high, None)
    else:
        assert found.rate <= edge < found.fails_at
        assert found.fails_at <= found.rate * (1 + tolerance)


@pytest.mark.parametrize(
    "low, high, tolerance", [(0, 1, 0.1), (2, 1, 0.1), (1, math.inf, 0.1), (1, 2, 0.0), (-1, 1, 1)]
)
def test_a_range_that_cant_be_searched_is_refused(low, high, tolerance):
    with pytest.raises(ValueError, match="is needed"):
        capacity(lambda rate: True, low, high, tolerance)


def test_a_noisy_edge_is_tried_again_and_lowered():
    edge = capacity(lambda rate: rate <= 8, 1.0, 100.0, tolerance=0.1)
    steady = confirmed(edge, lambda rate: True, runs=3)
    assert steady.rate == edge.rate and len(steady.trials) == len(edge.trials) + 2
    answers = iter([True, False, True, True, True])
    lowered = confirmed(edge, lambda rate: next(answers), runs=3, tolerance=0.1)
    assert lowered.rate == edge.rate / 1.1 and lowered.fails_at == edge.rate
    assert [trial.is_met for trial in lowered.trials[-5:]] == [True, False, True, True, True]
    hopeless = confirmed(edge, lambda rate: False, runs=2, tolerance=1.0)
    assert hopeless.rate == 0.0 and hopeless.trials[-1].rate == hopeless.fails_at >= 1.0
    assert confirmed(edge, lambda rate: False, runs=1) == edge


def test_the_interval_is_wilsons():
    low, high = interval(98, 100)
    assert (round(low, 4), round(high, 4)) == (0.93, 0.9945)
    assert interval(0, 5)[0] == 0.0 and interval(5, 5)[1] == 1.0
    assert interval(50, 50)[0] < 0.99 < interval(400, 400)[0]
    with pytest.raises(ValueError, match="6 of 5"):
        interval(6, 5)
