"""Cost models: sums are exact, coefficients are found again, what can't be used is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.measure.simulate import measured
from labkit.measure.simulate.cards import CARDS, blocks_on, for_card
from labkit.measure.simulate.cost import CostError, CostModel, Sample, seconds

coefficients = st.sampled_from([0.0, 1e-12, 3e-9, 2e-6, 1e-3])
models = st.builds(
    CostModel,
    fixed_s=st.sampled_from([1e-12, 1e-3]),
    weights_s=coefficients,
    per_decode_s=coefficients,
    per_context_token_s=coefficients,
    overlap=st.booleans(),
)


@given(models, st.integers(1, 60), st.integers(1, 9), st.integers(0, 5000))
def test_a_stride_takes_exactly_as_long_as_its_steps(cost, num_steps, decodes, context):
    single = [cost.step(0, decodes, context + i * decodes) for i in range(num_steps)]
    assert cost.stride(num_steps, decodes, context) == sum(single)
    assert cost.stride(0, decodes, context) == 0


@given(models, st.integers(1, 60), st.integers(1, 9), st.integers(0, 5000), st.data())
def test_the_fewest_steps_until_a_time(cost, most, decodes, context, data):
    time = data.draw(st.integers(0, 2 * cost.stride(most, decodes, context)))
    found = cost.steps_until(time, decodes, context, most)
    assert 1 <= found <= most
    assert found == most or cost.stride(found, decodes, context) >= time
    assert found == 1 or cost.stride(found - 1, decodes, context) < time


def test_a_step_by_hand():
    cost = CostModel(1.0, 2.0, 0.5, 0.25, 0.125, 0.0625)
    assert seconds(cost.step(prompt=4, decodes=2, context=8, swapped=16)) == 1 + 3 + 2.5 + 1
    both = CostModel(1.0, 2.0, 0.5, 0.25, 0.125, 0.0625, overlap=True)
    assert seconds(both.step(prompt=4, decodes=2, context=8)) == 1 + max(3, 2.5)


def test_coefficients_are_found_again():
    true = CostModel(0.02, 0, 0.001, 0.004, 2e-6)
    samples = [
        Sample(p, d, c, seconds(true.step(p, d, c)))
        for p, d, c in [(100, 0, 100), (0, 1, 50), (0, 8, 900), (30, 4, 400), (500, 0, 500)]
    ]
    found = CostModel.fit(samples, about="by hand")
    for name in ("fixed_s", "per_prompt_token_s", "per_decode_s", "per_context_token_s"):
        assert getattr(found, name) == pytest.approx(getattr(true, name), rel=1e-6)
    assert found.source == "measured" and found.about == "by hand"
    assert found.error(samples) < 1e-6


def test_a_coefficient_is_never_negative_and_too_few_steps_are_refused():
    rows = [(100, 0, 100), (0, 1, 500), (0, 8, 50), (30, 4, 40), (500, 0, 500)]
    samples = [Sample(p, d, c, 0.5 + 0.01 * p + 0.02 * d - 1e-4 * c) for p, d, c in rows]
    found = CostModel.fit(samples)
    assert found.per_context_token_s == 0 and found.per_prompt_token_s > 0
    with pytest.raises(CostError, match="3 measured steps; at least 4"):
        CostModel.fit(samples[:3])
    with pytest.raises(CostError, match="too much alike"):
        CostModel.fit([samples[0]] * 9)


def test_a_file_says_where_its_figures_come_from(tmp_path):
    file = tmp_path / "cost.json"
    cost = for_card("H100", 8e9, 131072)
    file.write_text(json.dumps(cost.to_json()), encoding="utf-8")
    assert CostModel.read(file) == cost


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ('{"fixed_s": 1}', "field 'source' is missing: measured or modelled"),
        ('{"fixed_s": -1, "source": "measured"}', "fixed_s is -1; seconds, 0 or more"),
        ('{"fixed_s": "1", "source": "measured"}', "fixed_s is '1'; seconds"),
        ('{"fixed_s": 1, "source": "guessed"}', "source is 'guessed'; accepted are measured"),
        ('{"fixd_s": 1, "source": "measured"}', "field 'fixd_s' is not known; accepted are"),
        ('{"per_decode_s": 1, "source": "measured"}', "make a step of no time"),
        ('{"fixed_s": 1, "overlap": 1, "source": "measured"}', "overlap is 1; true or false"),
        ("[]", "is no JSON object but list"),
        ("{", "is no JSON"),
    ],
)
def test_a_file_that_cant_be_used_is_refused_by_field(tmp_path, values, told):
    file = tmp_path / "cost.json"
    file.write_text(values, encoding="utf-8")
    with pytest.raises(CostError) as refused:
        CostModel.read(file)
    assert told in str(refused.value) and str(file) in str(refused.value)


def test_a_card_decodes_at_its_bandwidth_and_computes_prompts_at_its_peak():
    cost = for_card("H100", 8e9, 131072)
    assert seconds(cost.step(0, 1, 0)) == pytest.approx(16e9 / 3.35e12)
    assert seconds(cost.step(4096, 0, 4096)) == pytest.approx(2 * 8e9 * 4096 / 989e12)
    assert cost.source == "modelled" and "H100" in cost.about and "data sheet" in cost.about
    assert blocks_on("H100", 8e9, 131072) == int((72e9 - 16e9) / (131072 * 16))
    with pytest.raises(CostError, match="'T4' is not known; accepted are A100"):
        for_card("T4", 1, 1)
    with pytest.raises(CostError, match="don't fit a L4"):
        blocks_on("L4", 70e9, 1)
    assert all(card.bandwidth > card.host_bandwidth and card.source for card in CARDS.values())


def test_real_steps_are_measured_with_what_they_computed():
    from labkit.engine.continuous import ContinuousEngine
    from labkit.model.loading import load_decoder

    decoder = load_decoder("tiny").model
    engine = ContinuousEngine(decoder, frozenset(), 200, prefix_caching=False, max_model_len=512)
    samples = measured.measure(engine, decoder.config.vocab_size)
    assert all(sample.seconds > 0 for sample in samples)
    assert Sample(16, 0, 16, samples[0].seconds) == samples[0]
    assert any(sample.decodes == 16 for sample in samples)
    assert measured.copy_seconds(engine) > 0
