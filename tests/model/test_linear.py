"""The products: packed and in integers, held against torch's own."""

import pytest
import torch
import torch.nn.functional as F

from labkit.kernels import loops
from labkit.model.linear import Int8Linear, Linear, OneDNNLinear, Operand, PanelLinear

ROWS = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 64, 100, 255, 300)
SIZES = [(576, 192), (48, 100), (96, 47), (1536, 576)]  # in, out


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def arguments(inputs, outputs, seed=0):
    """Weight, bias, and the most rows of x."""
    return (
        random(outputs, inputs, seed=seed) * 0.05,
        random(outputs, seed=seed + 1),
        random(max(ROWS), inputs, seed=seed + 2),
    )


def wanted(weight, bias, x):
    """The definition, in float64."""
    return F.linear(x.double(), weight.double(), None if bias is None else bias.double())


def by_rows(product, x):
    operand = Operand(x.shape, integers=isinstance(product, Int8Linear))
    operand.values.copy_(x)
    loops.finish(operand.arrays)
    return torch.from_numpy(product.rows(operand) * operand.scale[:, None])


@pytest.mark.parametrize("kind", [Linear, PanelLinear, OneDNNLinear])
@pytest.mark.parametrize("sizes", SIZES)
def test_float32_products_are_exact_to_1e_5(kind, sizes):
    weight, bias, x = arguments(*sizes)
    for b in (None, bias):
        product = kind(weight, b)
        for n in ROWS:
            right = wanted(weight, b, x[:n])
            for found in (product(x[:n]), by_rows(product, x[:n])):
                assert (found.double() - right).abs().max() < 1e-5 * right.abs().max(), (n, b)


@pytest.mark.parametrize("kind", [Linear, PanelLinear, OneDNNLinear, Int8Linear])
def test_what_comes_in_is_not_changed(kind):
    weight, bias, x = (t[:8] for t in arguments(64, 8))
    before = [t.clone() for t in (weight, bias, x)]
    product = kind(weight, bias)
    product(x)
    by_rows(product, x)
    for old, new in zip(before, (weight, bias, x), strict=True):
        assert torch.equal(old, new)


HAS_BFLOAT16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
NEEDS_BFLOAT16 = pytest.mark.skipif(not HAS_BFLOAT16, reason="oneDNN needs AVX-512 for bfloat16")


@pytest.mark.parametrize("kind", [Linear, pytest.param(OneDNNLinear, marks=NEEDS_BFLOAT16)])
def test_bfloat16_products_round_once(kind):
    weight, bias, x = (t.bfloat16() for t in arguments(576, 192))
    product = kind(weight, bias)
    for n in (1, 7, 64):
        right = wanted(weight, bias, x[:n])
        for found in (product(x[:n]), by_rows(product, x[:n].float())):
            assert (found - right).abs().max() < 0.02 * right.abs().max()
        assert product(x[:n]).dtype == torch.bfloat16


# In 8-bit integers


@pytest.mark.parametrize("sizes", SIZES)
def test_the_error_of_int8_is_that_of_rounding_once_each_side(sizes):
    """|xw - x'w'| <= |x| |w - w'| + |x - x'| |w'|, with each difference half a step at most."""
    weight, bias, x = arguments(*sizes, seed=9)
    half_w = weight.abs().amax(dim=1) / 127 / 2
    for b in (None, bias):
        product = Int8Linear(weight, b)
        for n in ROWS:
            half_x = x[:n].abs().amax(dim=1, keepdim=True) / Int8Linear.ZERO / 2
            sum_x, sum_w = x[:n].abs().sum(dim=1, keepdim=True), weight.abs().sum(dim=1)
            bound = sum_x * half_w + half_x * (sum_w + half_w * weight.shape[1])
            error = (product(x[:n]) - wanted(weight, b, x[:n])).abs()
            assert (error <= bound * 1.001 + 1e-5).all()
            assert error.mean() < 0.1 * bound.mean()  # and nearly always far below


def quantized(x, zero):
    out, scale = torch.empty(x.shape, dtype=torch.uint8), torch.empty(len(x))
    loops.quantize(x.numpy(), zero, out.numpy(), scale.numpy())
    return out, scale


@pytest.mark.parametrize("zero", [63, 127])
def test_a_quantized_row_is_within_half_a_step(zero):
    x = random(50, 96) * torch.logspace(-6, 6, 50)[:, None]
    found, scale = quantized(x, zero)
    assert int(found.max()) <= 2 * zero
    back = (found.float() - zero) * scale[:, None]
    assert ((back - x).abs() <= 0.5001 * scale[:, None]).all()
    largest = found.gather(1, x.abs().argmax(dim=1, keepdim=True))
    assert set(largest.flatten().tolist()) <= {0, 2 * zero}


def test_a_row_of_zeros_gives_the_bias():
    weight, bias, _ = arguments(96, 47)
    found = Int8Linear(weight, bias)(torch.zeros(3, 96))
    torch.testing.assert_close(found, bias.expand(3, 47), rtol=1e-6, atol=0)


def test_an_output_channel_of_zeros_gives_zero():
    weight, _, x = arguments(96, 47)
    weight[5] = 0
    assert (Int8Linear(weight)(x)[:, 5] == 0).all()


@pytest.mark.parametrize("kind", [PanelLinear, Int8Linear])
@pytest.mark.parametrize("sizes", SIZES)
def test_a_row_is_the_same_to_the_last_bit_alone_and_beside_any_other(kind, sizes):
    weight, bias, x = arguments(*sizes)
    product = kind(weight, bias)
    x[0] *= 1e4  # a neighbour that would take all the steps of a common scale
    together = {n: product(x[:n]) for n in ROWS}
    for row in (1, 2, 6, 30, 99, 299):
        alone = product(x[row : row + 1])
        for n in ROWS:
            if row < n:
                assert torch.equal(together[n][row : row + 1], alone), (row, n)


@pytest.mark.parametrize("kind", [Linear, PanelLinear, OneDNNLinear, Int8Linear])
@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_broken_row_stays_broken_and_leaves_its_neighbours_alone(kind, broken):
    weight, bias, x = arguments(96, 47)
    product = kind(weight, bias)
    wanted = product(x[:8])
    x[3, 5] = broken
    found = product(x[:8])
    others = [0, 1, 2, 4, 5, 6, 7]
    assert torch.equal(found[others], wanted[others])
    assert not found[3].isfinite().any()
