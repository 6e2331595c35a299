"""What it means to meet an SLO, in one definition for `bench`, simulator and notebooks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.measure.metrics import Latency, latency
from labkit.measure.simulate.records import Group
from labkit.measure.simulate.slo import good_tokens, num_met
from labkit.measure.slo import PRESETS, SLO, goodput

FINE = latency(10.0, [10.5, 10.6, 10.9])  # TTFT 0.5, gaps 0.1 and 0.3, TPOT 0.2, E2E 0.9


@pytest.mark.parametrize(
    "slo, is_met",
    [
        (SLO(), True),
        (SLO(ttft=0.5), True),  # equal is within
        (SLO(ttft=0.49), False),
        (SLO(itl=0.31), True),
        (SLO(itl=0.29, tpot=1.0), False),  # one long gap, a small mean
        (SLO(tpot=0.19, itl=1.0), False),
        (SLO(e2e=0.89, ttft=1.0), False),
        (SLO(0.51, 0.31, 0.21, 0.91), True),
        (SLO(ttft=0.0), False),  # a limit of 0 is a limit
    ],
)
def test_a_request_meets_an_slo_within_every_limit(slo, is_met):
    assert slo.is_met(FINE) is is_met


def test_one_token_has_no_gap_to_be_late_with():
    one = latency(0.0, [2.0])
    assert SLO(itl=0.0, tpot=0.0).is_met(one) and not SLO(itl=0.0, ttft=1.0).is_met(one)


def test_a_deadline_is_one_more_limit():
    assert SLO(ttft=1.0).within(None) == SLO(ttft=1.0)
    assert SLO(ttft=1.0).within(3.0) == SLO(ttft=1.0, e2e=3.0)
    assert SLO(e2e=2.0).within(3.0).e2e == SLO(e2e=3.0).within(2.0).e2e == 2.0


def test_goodput_counts_requests_that_met_the_slo_and_no_failure():
    late = Latency(2.0, (), None, 2.0)
    assert goodput([FINE, late, None, FINE], SLO(ttft=1.0), 4.0) == 0.5
    assert goodput([], SLO(), 1.0) == 0.0 and goodput([None], SLO(), 1.0) == 0.0
    with pytest.raises(ValueError, match="seconds is 0"):
        goodput([FINE], SLO(), 0)


def test_the_presets_are_those_of_mlperf():
    limits = {name: (one.slo.ttft, one.slo.tpot) for name, one in PRESETS.items()}
    assert limits["llama2-70b"] == (2.0, 0.2) and limits["llama2-70b-interactive"] == (0.45, 0.04)
    assert limits["llama3.1-8b-interactive"] == (0.5, 0.03) and limits["deepseek-r1"] == (2.0, 0.08)
    for preset in PRESETS.values():
        assert preset.share == 0.99 and "MLPerf Inference v" in preset.source
        assert preset.slo.itl is None is preset.slo.e2e


times = st.lists(st.integers(1, 40), min_size=1, max_size=5)
limit = st.none() | st.integers(0, 60).map(float)


@given(st.lists(times, max_size=6), st.builds(SLO, limit, limit, limit, limit))
def test_the_columns_of_the_simulator_say_the_same(gaps_of_requests, slo):
    group, expected, tokens = Group(0, ""), 0, 0
    for gaps in gaps_of_requests:
        seen = [float(sum(gaps[: i + 1])) for i in range(len(gaps))]
        one = latency(0.0, seen)
        expected += slo.is_met(one)
        tokens += len(gaps) * slo.is_met(one)
        group.ttft.append(one.ttft)
        group.tpot.append(math.nan if one.tpot is None else one.tpot)
        group.longest_gap.append(max(one.itl, default=0.0))
        group.e2e.append(one.e2e)
        group.num_tokens.append(len(gaps))
    assert num_met(slo, group) == expected and good_tokens(slo, group) == tokens
