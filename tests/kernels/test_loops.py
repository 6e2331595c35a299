"""The compiled loops, held against torch's functions of the same meaning."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from families import HAS_VNNI

from labkit.kernels import integers, loops, panels, tiles
from labkit.kernels.large_pages import LARGE_PAGE
from labkit.model.linear import Operand


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_exp_is_as_right_as_it_says():
    x = torch.linspace(-87, 87, 200_001)
    found = np.array([loops.exp(np.float32(value)) for value in x.tolist()[::97]])
    wanted = x[::97].double().exp().numpy()
    allowed = (3 + 0.6 * x[::97].abs().numpy()) * 1e-7
    assert (np.abs(found / wanted - 1) < allowed).all()


def test_exp_of_less_than_the_smallest_is_next_to_nothing():
    assert 0 <= loops.exp(loops.LOWEST) < 1e-37
    assert np.isnan(loops.exp(np.float32("nan")))


@pytest.mark.parametrize("rows", [1, 2, 7, 64])
def test_a_sum_is_normalized_as_by_rms_norm(rows):
    x, raw, scale = random(rows, 96), random(rows, 96, seed=1), random(rows, seed=2).abs()
    wanted = x + raw * scale[:, None]
    operand = Operand((rows, 96), integers=True)
    eps = np.float32(1e-5)
    loops.add_and_normalize(x.numpy(), raw.numpy(), scale.numpy(), eps, operand.arrays)
    torch.testing.assert_close(x, wanted)
    torch.testing.assert_close(operand.values, F.rms_norm(wanted, (96,), eps=1e-5))
    back = (operand.integers.float() - loops.ZERO) * torch.from_numpy(operand.scale)[:, None]
    half_a_step = torch.from_numpy(operand.scale)[:, None] * 0.5001
    assert ((back - operand.values).abs() <= half_a_step).all()


@pytest.mark.parametrize("rows", [1, 3, 64])
def test_the_gate_is_silu_times_the_other_half(rows):
    raw, scale = random(rows, 192) * 10, random(rows, seed=2).abs()
    gate, up = (raw * scale[:, None]).chunk(2, dim=1)
    operand = Operand((rows, 96), integers=False)
    loops.gate(raw.numpy(), scale.numpy(), operand.arrays)
    torch.testing.assert_close(operand.values, F.silu(gate) * up)


@pytest.mark.skipif(not HAS_VNNI, reason="a processor without AVX-512 VNNI")
@pytest.mark.parametrize("outputs", [1, 3, 4, 5, 47])
@pytest.mark.parametrize("rows", [1, 2, 4, 5, 9])
def test_sums_in_integers_are_exact(rows, outputs):
    """With the largest numbers that there can be, too: they must not saturate."""
    x = torch.randint(0, 2 * loops.ZERO + 1, (rows, 128), dtype=torch.uint8)
    weight = torch.randint(-127, 128, (outputs, 128), dtype=torch.int8)
    x[0], weight[0] = 2 * loops.ZERO, -127
    out = np.empty((rows, outputs), np.float32)
    zeros = weight.sum(dim=1, dtype=torch.int32).numpy() * loops.ZERO
    one, none = np.ones(max(rows, outputs), np.float32), np.empty(0, np.float32)
    integers.product(x.numpy(), one, weight.numpy(), zeros.astype(np.int32), one, none, out)
    wanted = (x.long() - loops.ZERO) @ weight.long().t()
    assert out.astype(np.int64).tolist() == wanted.tolist()


ROWS = (0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 23, 24, 25, 33, 300)


@pytest.mark.parametrize("inputs", [1, 7, 40])
@pytest.mark.parametrize("outputs", [1, 15, 16, 17, 31, 32, 33, 64, 100])
def test_panels_multiply_any_number_of_rows_and_write_nowhere_else(outputs, inputs):
    weight, bias = random(outputs, inputs), random(outputs, seed=3)
    packed = panels.Panels(weight, bias)
    for rows in ROWS:
        x = random(rows, inputs, seed=rows)
        out = torch.full((rows + 2, outputs), float("nan"))
        panels.product(x.numpy(), packed.address, packed.bias, out[1:-1].numpy())
        torch.testing.assert_close(out[1:-1], x @ weight.t() + bias, rtol=1e-5, atol=1e-5)
        assert out[[0, -1]].isnan().all()


def test_a_weight_lies_in_panels_that_are_filled_up_with_zeros():
    weight = random(2 * tiles.WIDTH + 5, 3)
    found = panels.Panels(weight).panels
    assert found.shape == (3, 3, tiles.WIDTH)
    assert found.data_ptr() % LARGE_PAGE == 0
    unpacked = found.transpose(1, 2).flatten(0, 1)
    assert torch.equal(unpacked[: len(weight)], weight)
    assert (unpacked[len(weight) :] == 0).all()
