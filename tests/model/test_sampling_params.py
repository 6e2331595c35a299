"""What can be asked is kept in one form; what can't is refused with field, value and limit."""

import math
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.model.sampling_params import GREEDY, SamplingParams, child_seed, uniform


def test_nothing_asked_is_the_models_own_distribution_and_sixteen_tokens():
    params = SamplingParams()
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (1.0, 1.0, 0, 0.0)
    assert (params.n, params.max_tokens, params.seed, params.logprobs) == (1, 16, None, None)
    assert params.skip_special_tokens and not params.ignore_eos


def test_greedy_is_temperature_zero():
    assert replace(SamplingParams(), temperature=0.0) == GREEDY


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 0),
        ("n", 129),
        ("temperature", -0.1),
        ("temperature", 101),
        ("top_k", -2),
        ("top_p", -1),
        ("top_p", 0),
        ("top_p", 1.01),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("repetition_penalty", 0),
        ("presence_penalty", 2.1),
        ("frequency_penalty", -2.1),
        ("seed", 2**63),
        ("logprobs", 21),
        ("logprobs", -1),
        ("max_tokens", 0),
        ("max_tokens", -5),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("stop", ""),
        ("stop", ["a", ""]),
        ("stop", [5]),
        ("stop", None),
        ("stop", ["x"] * 17),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", 5),
        ("stop_token_ids", "5"),
        ("logit_bias", {5: 101}),
        ("logit_bias", {5: math.nan}),
        ("logit_bias", {"5": 1}),
        ("logit_bias", {-1: 1}),
        ("logit_bias", [5]),
        ("ignore_eos", 1),
        ("skip_special_tokens", "no"),
    ],
)
def test_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        SamplingParams(**{field: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "1", None, 10**400, [1]])
@pytest.mark.parametrize(
    "field",
    [
        "temperature",
        "top_p",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
    ],
)
def test_what_is_no_number_is_refused(field, value):
    with pytest.raises(ValueError, match=field):
        SamplingParams(**{field: value})


@pytest.mark.parametrize("value", [1.0, math.nan, True, "1", [1]])
@pytest.mark.parametrize("field", ["n", "top_k", "seed", "logprobs", "max_tokens", "min_tokens"])
def test_what_is_no_whole_number_is_refused(field, value):
    with pytest.raises(ValueError, match=field):
        SamplingParams(**{field: value})


def test_the_refusal_names_value_limit_and_remedy():
    with pytest.raises(ValueError) as refusal:
        SamplingParams(top_p=-1)
    assert str(refusal.value) == (
        "top_p is -1, a number from 0 to 1 is needed; "
        "1 keeps every token, a little above 0 only the best"
    )


def test_a_refusal_stays_short_for_a_value_of_a_megabyte():
    with pytest.raises(ValueError) as refusal:
        SamplingParams(temperature="x" * 1_000_000)
    assert len(str(refusal.value)) < 300


def test_one_stop_string_and_a_list_become_a_tuple():
    assert SamplingParams(stop="END").stop == ("END",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")
    assert SamplingParams(stop_token_ids=[3, 4]).stop_token_ids == (3, 4)


def test_what_was_checked_stays_as_it_was():
    bias = {5: 1.0}
    params = SamplingParams(logit_bias=bias)
    bias[5] = math.nan
    assert params.logit_bias == {5: 1.0}
    with pytest.raises(FrozenInstanceError):
        params.top_p = -1


def test_parameters_cross_a_process_boundary():
    params = SamplingParams(stop=["a"], logit_bias={5: 1.0}, seed=7)
    assert pickle.loads(pickle.dumps(params)) == params


def test_checking_a_request_loads_no_torch():
    program = "import sys, labkit.model.sampling_params; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**31))
def test_a_uniform_number_is_below_one_and_repeats(seed, position):
    assert 0.0 <= uniform(seed, position) < 1.0
    assert uniform(seed, position) == uniform(seed, position)


def test_uniform_numbers_fill_the_interval_evenly_along_positions_and_seeds():
    """256 bins, 25,600 numbers: chi-square has mean 255 and deviation 22.6."""
    for numbers in (
        [uniform(7, position) for position in range(25_600)],
        [uniform(seed, 0) for seed in range(25_600)],
        [uniform(seed, position) for seed in range(160) for position in range(160)],
    ):
        bins = [0] * 256
        for number in numbers:
            bins[int(number * 256)] += 1
        assert sum((count - 100) ** 2 / 100 for count in bins) < 255 + 4 * 22.6


def test_positions_of_neighbouring_seeds_do_not_repeat_each_other():
    """`seed + position` as the counter would give seed 1 the numbers of seed 0, one later."""
    numbers = {uniform(seed, position) for seed in range(50) for position in range(50)}
    assert len(numbers) == 2500


@given(st.integers(-(2**63), 2**63 - 1))
def test_the_first_answer_has_the_requests_seed_and_every_other_another(seed):
    children = [child_seed(seed, index) for index in range(128)]
    assert children[0] == seed
    assert len(set(children)) == 128
