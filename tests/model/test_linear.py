"""The products: packed and in integers, held against torch's own."""

import pytest
import torch
import torch.nn.functional as F

from labkit.model.linear import Int8Linear, Linear, PackedLinear, quantize_rows

ROWS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 100, 255, 300)
SIZES = [(576, 192), (48, 100), (96, 47), (1536, 576)]  # in, out


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def arguments(inputs, outputs, seed=0):
    """Weight, bias, and for the most rows x, row_scale and add."""
    most = max(ROWS)
    return (
        random(outputs, inputs, seed=seed) * 0.05,
        random(outputs, seed=seed + 1),
        random(most, inputs, seed=seed + 2),
        random(most, 1, seed=seed + 3).abs() + 0.1,
        random(most, outputs, seed=seed + 4),
    )


def wanted(weight, bias, x, row_scale, add):
    """The definition, in float64."""
    x = x.double() if row_scale is None else x.double() * row_scale.double()
    out = F.linear(x, weight.double(), None if bias is None else bias.double())
    return out if add is None else out + add.double()


@pytest.mark.parametrize("kind", [Linear, PackedLinear])
@pytest.mark.parametrize("sizes", SIZES)
def test_float32_products_are_exact_to_1e_5(kind, sizes):
    weight, bias, x, scale, add = arguments(*sizes)
    for has_bias in (False, True):
        product = kind(weight, bias if has_bias else None)
        for n in ROWS:
            for s, a in [(None, None), (scale[:n], None), (None, add[:n]), (scale[:n], add[:n])]:
                found = product(x[:n], s, a).double()
                right = wanted(weight, bias if has_bias else None, x[:n], s, a)
                assert (found - right).abs().max() < 1e-5 * right.abs().max(), (n, has_bias)


@pytest.mark.parametrize("kind", [Linear, PackedLinear, Int8Linear])
def test_what_comes_in_is_not_changed(kind):
    weight, bias, x, scale, add = (t[:8] for t in arguments(64, 8))
    before = [t.clone() for t in (weight, bias, x, scale, add)]
    kind(weight, bias)(x, scale, add)
    for old, new in zip(before, (weight, bias, x, scale, add), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize("kind", [Linear, PackedLinear])
def test_bfloat16_products_round_once(kind):
    weight, bias, x, scale, add = (t.bfloat16() for t in arguments(576, 192))
    product = kind(weight, bias)
    for n in (1, 7, 64):
        found = product(x[:n], scale[:n].float(), add[:n])
        right = wanted(weight, bias, x[:n], scale[:n], add[:n])
        assert found.dtype == torch.bfloat16
        assert (found - right).abs().max() < 0.02 * right.abs().max()


# In 8-bit integers


@pytest.mark.parametrize("sizes", SIZES)
def test_the_error_of_int8_is_that_of_rounding_once_each_side(sizes):
    """|xw - x'w'| <= |x| |w - w'| + |x - x'| |w'|, with each difference half a step at most."""
    weight, bias, x, scale, add = arguments(*sizes, seed=9)
    product = Int8Linear(weight, bias)
    half_w = weight.abs().amax(dim=1) / 127 / 2
    for n in ROWS:
        for s, a in [(None, None), (scale[:n], None), (None, add[:n]), (scale[:n], add[:n])]:
            scaled = x[:n] if s is None else x[:n] * s
            half_x = scaled.abs().amax(dim=1, keepdim=True) / Int8Linear.ZERO / 2
            sum_x, sum_w = scaled.abs().sum(dim=1, keepdim=True), weight.abs().sum(dim=1)
            bound = sum_x * half_w + half_x * (sum_w + half_w * weight.shape[1])
            error = (product(x[:n], s, a) - wanted(weight, bias, x[:n], s, a)).abs()
            assert (error <= bound * 1.001 + 1e-5).all()
            assert error.mean() < 0.1 * bound.mean()  # and nearly always far below


@pytest.mark.parametrize("zero", [63, 127])
def test_a_quantized_row_is_within_half_a_step(zero):
    x = random(50, 96) * torch.logspace(-6, 6, 50)[:, None]
    quantized, largest = quantize_rows(x, zero, torch.full((1, 1), zero + 0.5))
    scale = largest / zero
    assert quantized.dtype == torch.uint8 and int(quantized.max()) <= 2 * zero
    back = (quantized.float() - zero) * scale
    assert ((back - x).abs() <= 0.5001 * scale).all()
    largest = quantized.gather(1, x.abs().argmax(dim=1, keepdim=True))
    assert set(largest.flatten().tolist()) <= {0, 2 * zero}


def test_a_row_of_zeros_gives_the_bias():
    weight, bias, *_ = arguments(96, 47)
    assert torch.equal(Int8Linear(weight, bias)(torch.zeros(3, 96)), bias.expand(3, 47))


def test_an_output_channel_of_zeros_gives_zero():
    weight, _, x, *_ = arguments(96, 47)
    weight[5] = 0
    assert (Int8Linear(weight)(x)[:, 5] == 0).all()


@pytest.mark.parametrize("sizes", SIZES)
def test_a_row_in_int8_is_the_same_alone_and_beside_any_other(sizes):
    weight, bias, x, scale, add = arguments(*sizes)
    product = Int8Linear(weight, bias)
    x[0] *= 1e4  # a neighbour that would take all the steps of a common scale
    together = {n: product(x[:n], scale[:n], add[:n]) for n in ROWS}
    for row in (1, 2, 6, 30, 99, 299):
        alone = product(x[row : row + 1], scale[row : row + 1], add[row : row + 1])
        for n in ROWS:
            if row < n:
                assert torch.equal(together[n][row : row + 1], alone), (row, n)


@pytest.mark.parametrize("kind", [Linear, PackedLinear, Int8Linear])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_broken_row_stays_broken_and_leaves_its_neighbours_alone(kind, broken):
    weight, bias, x, scale, add = arguments(96, 47)
    product = kind(weight, bias)
    wanted = product(x[:8], scale[:8], add[:8])
    x[3, 5] = broken
    found = product(x[:8], scale[:8], add[:8])
    others = [0, 1, 2, 4, 5, 6, 7]
    assert torch.equal(found[others], wanted[others])
    assert not found[3].isfinite().any()
