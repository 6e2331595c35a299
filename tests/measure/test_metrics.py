"""Latency and work against figures computed by hand."""

import pytest

from labkit.measure.metrics import latency
from labkit.measure.work import token_forwards


def test_ttft_and_the_gaps_add_up_to_e2e():
    found = latency(2.0, [3.5, 3.75, 4.75, 5.0])
    assert found.ttft == 1.5
    assert found.itl == (0.25, 1.0, 0.25)
    assert found.e2e == found.ttft + sum(found.itl) == 3.0
    assert found.tpot == 0.5


def test_one_token_has_no_time_per_output_token():
    assert latency(0.0, [1.0]).tpot is None


def test_no_token_has_no_latency():
    with pytest.raises(ValueError, match="0 time stamps"):
        latency(0.0, [])


@pytest.mark.parametrize(
    ("prompt", "output", "without", "cached"),
    [(1, 1, 1, 1), (4, 3, 15, 6), (100, 200, 39_900, 299), (7, 0, 0, 0)],
)
def test_token_forwards_by_hand(prompt, output, without, cached):
    assert token_forwards(prompt, output, use_cache=False) == without
    assert token_forwards(prompt, output, use_cache=True) == cached
