"""The breaker: open after failures in a row, one probe after each cool-down, closed by success."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.fleet.breaker import Breaker


def opened(at=0.0, **options):
    breaker = Breaker(**options)
    for _ in range(breaker.failures):
        breaker.failed(at)
    return breaker


def test_it_opens_after_failures_in_a_row_only():
    breaker = Breaker(failures=3)
    for _ in range(5):
        breaker.failed(0.0)
        breaker.failed(0.0)
        breaker.succeeded(0.0)
    assert breaker.allows(0.0) and breaker.state(0.0) == "closed"
    assert not opened(failures=3).allows(0.9)


def test_after_the_cool_down_there_is_one_probe_at_a_time():
    breaker = opened(cooldown_s=1.0)
    assert breaker.state(1.0) == "half-open"
    assert [breaker.allows(1.0) for _ in range(3)] == [True, False, False]
    assert not breaker.allows(100.0)  # nothing is known of the first one yet
    breaker.cancelled(100.0)
    assert [breaker.allows(100.0) for _ in range(2)] == [True, False]
    breaker.succeeded(101.0)
    assert all(breaker.allows(101.0) for _ in range(3))


def test_the_cool_down_doubles_with_each_probe_that_fails_and_is_short_again_after_a_success():
    breaker, now, waits = opened(cooldown_s=1.0, longest_s=6.0), 0.0, []
    for _ in range(5):
        waits.append(breaker.cooldown_s)
        now += breaker.cooldown_s
        assert not breaker.allows(now - 0.001) and breaker.allows(now)
        breaker.failed(now)
    assert waits == [1, 2, 4, 6, 6]
    breaker.succeeded(now)
    for _ in range(3):
        breaker.failed(now)
    assert breaker.allows(now + 1.0)


def test_fifty_that_were_on_their_way_count_as_one_opening():
    breaker = Breaker(failures=3, cooldown_s=1.0)
    for _ in range(50):
        breaker.failed(0.0)
    assert breaker.allows(1.0)


@given(st.lists(st.tuples(st.sampled_from(["ask", "fail", "succeed", "cancel"]),
                          st.floats(0, 3))))  # fmt: skip
def test_in_any_history_there_is_at_most_one_probe_and_never_an_end_without_one(history):
    breaker, now, probes, plain = Breaker(), 0.0, 0, 0
    for action, passed in history:
        now += passed
        if action == "ask":
            before = breaker.state(now)
            if breaker.allows(now):
                assert before != "open"
                probes, plain = (probes + 1, plain) if breaker.is_open else (probes, plain + 1)
            assert probes <= 1
        elif probes:  # the probe's end
            probes = 0
            {"fail": breaker.failed, "succeed": breaker.succeeded,
             "cancel": breaker.cancelled}[action](now)  # fmt: skip
        elif plain and action != "cancel":
            plain -= 1
            {"fail": breaker.failed, "succeed": breaker.succeeded}[action](now)
    if not probes:
        assert breaker.allows(now + breaker.longest_s)


@pytest.mark.parametrize("now", [0.0, -5.0, 1e9])
def test_any_clock_will_do(now):
    breaker = opened(now)
    assert not breaker.allows(now) and breaker.allows(now + 1.0)
