"""How many replicas: enough for the requests, one more for a full cache, and no swinging."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.fleet.scaling import Limits, Load, wanted_replicas

LIMITS = Limits(min_replicas=1, max_replicas=5, requests_each=8, kv_low=0.6)


@pytest.mark.parametrize(
    ("load", "wanted"),
    [
        (Load(1, 0, 0.0), 1),
        (Load(1, 8, 0.1), 1),
        (Load(1, 9, 0.1), 2),
        (Load(2, 400, 0.1), 5),
        (Load(4, 0, 0.0), 1),
        (Load(2, 3, 0.95), 3),
        (Load(5, 3, 0.95), 5),
        (Load(3, 3, 0.9), 3),
        (Load(3, 3, 0.6), 3),
        (Load(3, 3, 0.59), 1),
    ],
)
def test_so_many_are_wanted(load, wanted):
    assert wanted_replicas(load, LIMITS) == wanted


@given(
    st.integers(1, 9), st.integers(0, 200), st.floats(0, 1), st.integers(1, 5), st.integers(0, 4)
)
def test_it_stays_within_limits_and_more_load_never_means_fewer(now, requests, kv, least, more):
    limits = Limits(least, least + more, 8)
    wanted = wanted_replicas(Load(now, requests, kv), limits)
    assert limits.min_replicas <= wanted <= limits.max_replicas
    assert wanted <= wanted_replicas(Load(now, requests + 1, kv), limits)
    assert wanted <= wanted_replicas(Load(now, requests, min(1.0, kv + 0.1)), limits)


def test_a_full_cache_that_a_second_replica_halves_is_not_taken_away_again():
    assert wanted_replicas(Load(1, 3, 0.95), Limits()) == 2
    assert wanted_replicas(Load(2, 3, 0.95 / 2), Limits()) == 2


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas is 3 and max_replicas 2"),
        ({"min_replicas": 0}, "min_replicas is 0"),
        ({"kv_low": 0.95}, "kv_low is 0.95 and kv_high 0.9"),
        ({"requests_each": 0}, "requests_each is 0"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(fields, told):
    with pytest.raises(ValueError, match=told):
        Limits(**fields)
