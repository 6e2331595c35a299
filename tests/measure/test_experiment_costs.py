"""The experiments of notebook 10: on a fake engine and on the virtual clock."""

import base64
import math
import zlib
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.fleet.pools import Pools, Spill
from labkit.fleet.scaling import Limits, wanted_replicas
from labkit.measure.capstone import Configuration, make_workload
from labkit.measure.experiments import costs, costs_scaling
from labkit.measure.experiments.costs_capstone import (
    MARK,
    PasteError,
    attack_as_text,
    attack_from_text,
    configuration_as_text,
    configuration_from_text,
    fold,
)
from labkit.measure.experiments.costs_scaling import follow
from labkit.measure.experiments.costs_simulated import pooled, priced
from labkit.measure.metrics import latency
from labkit.measure.simulate.requests import Arrival
from labkit.measure.slo import SLO
from labkit.model import load_decoder


@pytest.fixture(scope="module")
def tiny():
    return load_decoder("tiny")


@pytest.fixture(scope="module")
def workload():
    return make_workload()


def test_each_rate_has_the_same_pattern_only_faster(tiny):
    slow, quick = (costs.requests(tiny, 6, rate) for rate in (1.0, 4.0))
    assert [one.arrival for one in slow] == pytest.approx([4 * one.arrival for one in quick])
    assert slow[0].arrival == 0
    assert [one.prompt_token_ids for one in slow] == [one.prompt_token_ids for one in quick]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_requests_arrive_at_the_rate_that_was_asked(tiny, seed):
    made = costs.requests(tiny, 20, 22.0, seed)
    assert made[-1].arrival == pytest.approx(19 / 22.0)
    gaps = {round(b.arrival - a.arrival, 6) for a, b in pairwise(made)}
    assert len(gaps) > 10  # at random, nevertheless
    assert [one.arrival for one in costs.requests(tiny, 1, 22.0, seed)] == [0.0]
    assert costs.requests(tiny, 0, 22.0, seed) == []


def test_an_idle_engine_is_judged_by_its_best_request(tiny, monkeypatch):
    seen = [latency(0.0, times) for times in ([2.0, 5.0], [0.5, 1.5], [4.0, 4.25])]
    runs = iter([SimpleNamespace(latencies={"chat-0": one}) for one in seen])
    monkeypatch.setattr(costs, "NUM_ALONE", 3)
    monkeypatch.setattr(costs, "drive", lambda engine, requests: next(runs))
    assert costs.alone(None, tiny) == SLO(ttft=0.5, tpot=0.25)


def test_a_load_on_a_real_engine_is_judged_by_its_slo(tiny):
    engine = costs.make_engine(tiny)
    idle = costs.alone(engine, tiny)
    assert idle.ttft > 0 < idle.tpot and costs.fastest(engine, tiny, 4) > 0
    loose, strict = SLO(ttft=1000.0), SLO(ttft=1e-9)
    found = [costs.offer(engine, tiny, 100.0, slo, count=4) for slo in (loose, strict)]
    assert [one.attainment for one in found] == [1.0, 0.0]
    assert found[0].goodput == found[0].throughput > 0 == found[1].goodput


def point(rate, attainment):
    return costs.Offered(rate, rate * attainment, rate, attainment, 0.1, 0.1, 0.1, 1.0)


def test_the_knee_is_the_last_rate_before_the_first_miss():
    assert costs.knee([point(1, 1.0), point(4, 0.5), point(2, 0.95), point(8, 0.9)]) == 2
    assert costs.knee([point(1, 0.5)]) == 0.0


def test_beyond_the_knee_all_tokens_get_cheaper_and_good_ones_dearer():
    light, full, flooded = (priced(rate, num_requests=400) for rate in (4, 40, 64))
    assert light.attainment == full.attainment == 1.0 and light.cost == light.good_cost
    assert flooded.tokens_per_s > full.tokens_per_s and flooded.cost < full.cost < light.cost
    assert flooded.good_cost > 4 * full.good_cost
    assert priced(4, num_requests=50, slo=SLO(ttft=1e-9)).good_cost == math.inf
    assert priced(4, num_requests=50, per_hour=0.0).cost == 0


def test_a_strict_wall_keeps_chat_in_and_spill_over_keeps_every_promise(workload):
    split = Configuration(replicas=4, router="pools", dedicated=1)
    walled = pooled("strict", split, workload, Pools(spill=Spill(urgent_above=10**9)))
    open_ = pooled("spill", split, workload)
    assert walled.met["chat"] < 0.2 and not walled.is_kept["chat"]
    assert all(open_.is_kept.values()) and open_.cost < walled.cost / 2
    assert walled.busy[0] > 0.99 and max(walled.busy[1:]) < 0.6


@pytest.fixture
def short_day(monkeypatch):
    monkeypatch.setattr(costs_scaling, "DAY", ((30.0, 0.5), (60.0, 4.0), (150.0, 0.2)))


def test_replicas_follow_the_load_and_go_again(short_day):
    run = follow(delay_s=10.0, patience_s=20.0)
    assert run.moments[0].paid == run.moments[-1].serving == 1
    assert max(moment.serving for moment in run.moments) > 2
    starting = [moment.time for moment in run.moments if moment.starting]
    serving = [moment.time for moment in run.moments if moment.serving > 1]
    assert serving[0] - starting[0] == 10.0
    assert run.replica_seconds == sum(5 * moment.paid for moment in run.moments)


def test_a_start_that_takes_longer_makes_more_requests_late(short_day):
    quick, slow = (follow(delay_s=delay) for delay in (0.0, 60.0))
    assert slow.attainment < quick.attainment


def test_a_fixed_number_stays_and_all_are_paid_for(short_day):
    run = follow(wanted_replicas, Limits(2, 2, requests_each=16))
    assert {(m.serving, m.starting, m.ending) for m in run.moments} == {(2, 0, 0)}


def test_a_configuration_survives_the_trip_through_a_chat():
    chosen = Configuration(replicas=3, policy="fair", router="pools", dedicated=1)
    text = configuration_as_text(chosen)
    assert configuration_from_text(f"  {text[:30]}\n{text[30:]} ") == chosen
    assert configuration_from_text(configuration_as_text(Configuration())) == Configuration()


@given(
    st.lists(
        st.builds(
            Arrival,
            st.floats(0, 40),
            st.integers(1, 8192),
            st.integers(1, 1024),
            st.integers(-9, 9),
            st.just("attacker"),
            st.none() | st.floats(0, 100),
            st.none(),
            st.just(""),
        ),
        max_size=20,
    )
)
def test_an_attack_survives_too(arrivals):
    assert attack_from_text(attack_as_text(arrivals)) == arrivals


def folded(plain: bytes) -> str:
    return f"{MARK}attack:{base64.b64encode(zlib.compress(plain)).decode()}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "begins with"),
        (configuration_as_text(Configuration(replicas=3)), "begins with"),
        (attack_as_text([Arrival(0.0, 1, 1)])[:-9], "cut|damaged"),
        (f"{MARK}attack:%%%", "damaged"),
        (f"{MARK}attack:{'A' * 40}", "damaged|cut"),
        (fold("attack", [[0.0, 0, 1, 0, None]]), "no list of requests"),
        (fold("attack", [[0.0, True, 1, 0, None]]), "no list of requests"),
        (fold("attack", [["0", 1, 1, 0, None]]), "no list of requests"),
        (fold("attack", {"a": 1}), "no list of requests"),
        (fold("attack", " " * 200_000), "longer than"),
        (folded(b"[" * 90_000), "damaged"),
        (folded(b"9" * 5000), "damaged"),
        (f"{MARK}attack:é", "damaged"),
        (fold("attack", [[10**400, 1, 1, 0, None]]), "no list of requests"),
        (fold("attack", [[0.0, 1, 1, 10**400, None]]), "no list of requests"),
        (fold("attack", [[0.0, 1, 1, 0, -1e308]]), "no list of requests"),
        (fold("attack", [[0.0, 1, 1, 0, float("nan")]]), "no list of requests"),
    ],
)
def test_a_text_that_is_not_whole_is_refused_with_what_to_do(text, told):
    with pytest.raises(PasteError, match=told):
        attack_from_text(text)


def test_a_pasted_choice_that_there_is_not_is_named():
    with pytest.raises(ValueError, match="replicas is 900"):
        configuration_from_text(fold("configuration", {"replicas": 900}))
    with pytest.raises(PasteError, match="an object"):
        configuration_from_text(fold("configuration", [1]))
