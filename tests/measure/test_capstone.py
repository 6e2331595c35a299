"""The capstone: what can be chosen, what a choice costs, and how another's falls."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.measure.capstone import (
    ATTACKS,
    CLASSES,
    GREEDY,
    Attack,
    AttackError,
    Configuration,
    ConfigurationError,
    attack,
    make_workload,
    score,
)
from labkit.measure.capstone import attacks as limits
from labkit.measure.capstone.workloads import Workload
from labkit.measure.cost import PRICES
from labkit.measure.simulate.requests import Arrival
from labkit.measure.simulate.traces import TraceError

TUNED = Configuration(replicas=2, policy="priority", max_num_seqs=256)
TUNED = replace(TUNED, max_num_batched_tokens=512)


@pytest.fixture(scope="module")
def whole():
    return make_workload()


@pytest.fixture(scope="module")
def small(whole):
    """The beginning of it: enough to see how things are counted."""
    return Workload("small", tuple(one for one in whole.arrivals if one.time < 1.5), 1.5)


def test_three_classes_arrive_in_order_each_with_its_promise(whole):
    times = [one.time for one in whole.arrivals]
    assert times == sorted(times) and times[0] >= 0 and times[-1] <= whole.seconds
    assert len(whole.arrivals) == 2160
    for kind in CLASSES:
        own = [one for one in whole.arrivals if one.tenant == kind.name]
        assert own and {one.priority for one in own} == {kind.priority}
        assert all(one.deadline == one.time + kind.slo.e2e for one in own)
    assert whole.fingerprint == make_workload().fingerprint != make_workload(seed=1).fingerprint


def test_a_real_trace_takes_the_place_of_a_synthetic_one(tmp_path):
    trace = tmp_path / "code.csv"
    rows = [f"2023-11-16 18:{i // 60:02}:{i % 60:02}.0,{1000 + i},7" for i in range(250)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]), "utf-8")
    made = make_workload(agent_trace=trace)
    agents = [one for one in made.arrivals if one.tenant == "agent"]
    assert [one.num_prompt_tokens for one in agents] == [1000 + i for i in range(240)]
    assert "code.csv" in made.name
    with pytest.raises(TraceError, match="250 requests, 1920 are needed"):
        make_workload(chat_trace=trace)


def test_the_default_keeps_every_promise_and_the_greedy_one_does_not(whole):
    default, greedy, tuned = (score(one, whole) for one in (Configuration(), GREEDY, TUNED))
    assert default.is_valid and tuned.is_valid and not greedy.is_valid
    assert greedy.met["chat"] < 0.5 and greedy.met["batch"] == 1.0
    assert tuned.cost < default.cost / 2  # it is clearly beaten
    assert sorted([greedy, default, tuned], key=lambda one: one.rank) == [tuned, default, greedy]
    assert default.price_per_hour == pytest.approx(5 * PRICES["H100"].per_hour)
    assert default.cost == pytest.approx(
        default.price_per_hour / 3600 * default.seconds / default.good_tokens * 1e6
    )


def test_a_score_is_the_same_every_time(small):
    assert score(TUNED, small) == score(TUNED, small)


def test_the_price_can_be_told(small):
    mine = score(TUNED, small, price_per_hour=1.0)
    assert mine.price_per_hour == 2.0
    assert mine.cost == pytest.approx(score(TUNED, small).cost / PRICES["H100"].per_hour)


def test_the_rent_runs_until_nobody_waits_any_more(small):
    fast, slow = score(Configuration(), small), score(Configuration(max_num_seqs=1), small)
    assert small.seconds <= fast.seconds < 1.2 * small.seconds < slow.seconds


def test_who_gets_no_answer_meets_nothing_and_costs_all_the_same(small):
    poor = score(replace(TUNED, num_blocks=4), small)  # 64 tokens: few prompts fit
    assert not poor.is_valid and poor.cost > 5 * score(TUNED, small).cost
    chat = poor.classes[0]
    assert chat.num_failed > 0.9 * chat.num_requests and chat.met < 0.1
    assert chat.ttft is None  # its 99th percentile never came
    none = score(replace(TUNED, num_blocks=1), small)
    assert none.cost == math.inf and none.good_tokens == 0


choices = st.fixed_dictionaries({
    "card": st.sampled_from(["L40S", "H100", "H200"]),
    "replicas": st.integers(2, 4),
    "policy": st.sampled_from(["fcfs", "priority", "fair", "deadline"]),
    "max_num_batched_tokens": st.sampled_from([200, 512, 4096]),
    "max_num_seqs": st.sampled_from([8, 32, 256]),
    "num_blocks": st.sampled_from([None, 600, 3000]),
    "preemption": st.sampled_from(["recompute", "swap", "auto"]),
    "router": st.sampled_from(["round-robin", "least-loaded", "power-of-two"]),
})  # fmt: skip


@given(choices)
@settings(max_examples=10, deadline=None)
def test_whatever_is_chosen_every_request_is_counted_once(small, values):
    found = score(Configuration(**values), small)
    assert sum(one.num_requests for one in found.classes) == len(small.arrivals)
    assert all(0 <= one.met <= 1 for one in found.classes)
    most = sum(one.num_output_tokens for one in small.arrivals)
    assert 0 <= found.good_tokens <= most and 0 <= found.kv_peak <= 1
    assert found.seconds >= small.seconds and 0 < found.busy <= 1


def test_a_dedicated_pool_keeps_chat_from_waiting(whole):
    mixed = Configuration(replicas=3, max_num_seqs=256)
    apart = replace(mixed, router="pools", dedicated=1)
    one, other = score(mixed, whole), score(apart, whole)
    assert other.classes[0].ttft < one.classes[0].ttft and other.met["chat"] > one.met["chat"]


@pytest.mark.parametrize(
    "values, told",
    [
        ({"card": "T4"}, "card is 'T4'; accepted: A100"),
        ({"policy": "lifo"}, "policy is 'lifo'; accepted: fcfs"),
        ({"policy": []}, r"policy is \[\]"),
        ({"replicas": 1}, "replicas is 1; accepted: whole numbers from 2"),
        ({"replicas": 2.0}, "replicas is 2.0"),
        ({"replicas": True}, "replicas is True"),
        ({"max_num_seqs": 0}, "max_num_seqs is 0"),
        ({"num_blocks": 10**6}, "num_blocks is 1000000; accepted: 1 to .* what H100 holds"),
        ({"card": "L4", "num_blocks": 20_000}, "what L4 holds"),
        ({"dedicated": 1}, "dedicated is 1; accepted: the router pools"),
        ({"lend_below": 5}, "lend_below is 5; accepted: the router pools"),
        ({"router": "pools"}, "dedicated is 0; accepted: 1 to 4 of the 5 replicas"),
        ({"router": "pools", "dedicated": 5}, "dedicated is 5"),
        ({"router": "prefix"}, "router is 'prefix'"),
    ],
)
def test_a_choice_that_there_is_not_is_refused_by_name(values, told):
    with pytest.raises(ConfigurationError, match=told):
        Configuration(**values)


def test_a_configuration_goes_to_json_and_back(tmp_path):
    assert Configuration.from_json(TUNED.to_json()) == TUNED
    assert str(TUNED).startswith("2 x H100, policy priority, max_num_batched_tokens 512")
    file = tmp_path / "c.json"
    for text, told in [("{", "c.json: "), ("[1]", "no JSON object"), ('{"gpu": 1}', "'gpu'")]:
        file.write_text(text, "utf-8")
        with pytest.raises(ConfigurationError, match=told):
            Configuration.read(file)
    with pytest.raises(ConfigurationError, match="can't be read"):
        Configuration.read(tmp_path / "none.json")


# Attacks


def test_long_prompts_that_call_themselves_urgent_break_priority(whole):
    found = attack(TUNED, whole, ATTACKS["long-prompts"])
    assert found.alone.is_valid and found.plain.is_valid
    assert found.broken == ["chat"] and found.damage["chat"] > 0.005


def test_an_attack_is_compared_with_as_many_tokens_that_come_evenly(small):
    burst = [Arrival(1.0, 4000, 100, -1)] * 10
    plain = limits.yardstick(burst, small.seconds)
    assert len(plain) == 10 and {one.priority for one in plain} == {1}
    assert sum(one.num_prompt_tokens for one in plain) == 40_000
    assert [round(b.time - a.time, 9) for a, b in zip(plain, plain[1:], strict=False)] == [0.15] * 9
    found = attack(TUNED, small, burst)
    assert isinstance(found, Attack) and found == attack(TUNED, small, burst)
    assert sum(one.num_requests for one in found.attacked.classes) == len(small.arrivals)


@given(st.integers(0, 10_000), st.integers(1, 130))
def test_tokens_are_spread_without_a_rest(total, count):
    parts = limits.spread(total, count)
    assert sum(parts) == total and len(parts) == count and max(parts) - min(parts) <= 1


@pytest.mark.parametrize(
    "arrivals, told",
    [
        ([], "0 requests"),
        ([Arrival(i / 10, 10, 10) for i in range(121)], "121 requests; an attack may have 120"),
        ([Arrival(i, 8000, 500) for i in range(20)], "170,000 tokens of prompts and answers"),
        ([Arrival(0.0, 9000, 1)], "9,000 prompt tokens of one request"),
        ([Arrival(0.0, 10, 2000)], "2,000 output tokens of one request"),
        ([Arrival(41.0, 10, 1)], "arrives at 41 s; 0 to 40 s"),
        ([Arrival(1.0 + i / 100, 10, 1) for i in range(41)], "41 requests arrive within 0.40 s"),
    ],
)
def test_overload_is_no_attack(whole, arrivals, told):
    with pytest.raises(AttackError, match=told):
        attack(TUNED, whole, arrivals)


def test_the_built_in_attacks_are_within_the_limits(whole):
    for arrivals in ATTACKS.values():
        limits.check(arrivals, whole.seconds)


@pytest.mark.parametrize(
    "values, told",
    [
        ({"num_prompt_tokens": -5}, "request 1: num_prompt_tokens is -5; a whole number from 1"),
        ({"num_prompt_tokens": 1.5}, "num_prompt_tokens is 1.5"),
        ({"num_output_tokens": math.nan}, "num_output_tokens is nan"),
        ({"num_output_tokens": True}, "num_output_tokens is True"),
        ({"priority": "x"}, "priority is 'x'"),
        ({"priority": 10**400}, "priority is 1000"),
        ({"deadline": math.nan}, "deadline is nan; None or seconds"),
        ({"deadline": -1e308}, "deadline is -1e.308"),
        ({"deadline": "soon"}, "deadline is 'soon'"),
        ({"time": None}, "time is None"),
        ({"time": math.nan}, "time is nan"),
    ],
)
def test_a_request_that_no_client_can_send_is_named(whole, values, told):
    with pytest.raises(AttackError, match=told):
        attack(TUNED, whole, [Arrival(1.0, 10, 10), Arrival(2.0, 10, 10)._replace(**values)])


def test_a_promise_that_any_shift_breaks_is_not_broken_by_the_attack(whole):
    found = score(TUNED, whole)
    name, *_ = found.met

    def with_met(met):
        first, *others = found.classes
        return replace(found, classes=(replace(first, met=met), *others))

    limit = found.classes[0].share
    hair = Attack(found, with_met(limit + 0.001), with_met(limit - 0.005))
    hit = Attack(found, with_met(limit + 0.001), with_met(limit - 0.015))
    assert hair.broken == [] and hit.broken == [name]


def test_a_file_nested_too_deep_is_no_configuration(tmp_path):
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000, "utf-8")
    with pytest.raises(ConfigurationError, match="deep.json"):
        Configuration.read(file)
