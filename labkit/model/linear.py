"""The products with weights, where a decode step spends its time.

Each kind is called as `product(x)` and returns `x @ weight.T + bias`, `[T, out]`, for `x`
`[T, in]`. On a CPU `product.rows(operand)` gives an array `[T, out]` (float32) of which each row
still is to be multiplied with its `operand.scale`: who reads it next does so.
"""

import numpy as np
import torch
import torch.nn.functional as F

from labkit.kernels import integers, loops, panels
from labkit.model.checkpoint import ModelError


class Operand:
    """Memory for what products read, `[T, in]`, filled by loops (`arrays`): in float32 and, for
    `Int8Linear`, as integers, with a scale for each row."""

    def __init__(self, shape: tuple[int, int], integers: bool):
        self.values, self.scale = torch.empty(shape), np.ones(shape[0], np.float32)
        self.integers = torch.empty(shape if integers else (0, 0), dtype=torch.uint8)
        self.arrays = (self.values.numpy(), self.integers.numpy(), self.scale)


class Linear:
    """As torch does it: on every device, in every precision."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        self.weight, self.bias = weight, bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)

    def rows(self, operand: Operand) -> np.ndarray:
        return self(operand.values).float().numpy()


class PanelLinear(Linear):
    """For a CPU in float32: the weight is packed once, in the order in which it is read.

    `F.linear` does that again for every call; on 4 to 16 rows it takes as long as the product.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        super().__init__(panels.Panels(weight, bias))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.ndim != 2 or x.shape[1] != self.weight.inputs:
            raise ValueError(f"x is {list(x.shape)}; [T, {self.weight.inputs}] is needed")
        out = torch.empty(len(x), self.weight.outputs)
        rows = x.float().contiguous().numpy()
        panels.product(rows, self.weight.address, self.weight.bias, out.numpy())
        return out


class OneDNNLinear(Linear):
    """For a CPU in bfloat16: the same with oneDNN."""

    EXPECTED_ROWS = 64

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        packed = torch.ops.mkldnn._reorder_linear_weight(weight, self.EXPECTED_ROWS)
        super().__init__(packed, bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.to(self.weight.dtype)
        return torch.ops.mkldnn._linear_pointwise.default(x, self.weight, self.bias, "none", [], "")


class Int8Linear(Linear):
    """8-bit integers on both sides: a quarter of the bytes to read, and sums without rounding.

    The weight has one scale per output channel, `x` one per row. With one scale for all of `x`,
    as torch's own dynamic quantization has it, a large number in one request's row would
    coarsen its neighbours' rows, and an answer would depend on who else is in the batch.

    `x` is stored from 0 to 2 * ZERO, the weight from -127 to 127: so oneDNN multiplies fastest.
    For a few rows `kernels.integers` is faster, and holds the weight in its own order, too.
    """

    ZERO = loops.ZERO
    FEW = 32  # rows up to which `kernels.integers` is faster than oneDNN

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        weight, bias = weight.float().contiguous(), None if bias is None else bias.float()
        step = weight.abs().amax(dim=1, keepdim=True).clamp_(min=1e-20) / 127
        weight = (weight / step).round_().to(torch.int8)
        try:
            packed = torch.ops.onednn.qlinear_prepack(weight, None)
        except (RuntimeError, AttributeError) as error:
            raise ModelError(
                f"dtype int8 needs torch with oneDNN's integer products ({error}); use float32"
            ) from error
        super().__init__(packed, bias)
        self.step = step.flatten()
        self.no_zeros = torch.zeros(len(weight), dtype=torch.int32)
        self.arrays = None  # for `kernels.integers`, where it can be had
        if integers.available(weight.shape[1]):
            zeros = weight.sum(dim=1, dtype=torch.int32) * self.ZERO
            bias_array = np.empty(0, np.float32) if bias is None else bias.numpy()
            self.arrays = (weight.numpy(), zeros.numpy(), self.step.numpy(), bias_array)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        operand = Operand(x.shape, integers=True)
        operand.values.copy_(x)
        loops.finish(operand.arrays)
        return torch.from_numpy(self.rows(operand) * operand.scale[:, None])

    def rows(self, operand: Operand) -> np.ndarray:
        if self.arrays and len(operand.scale) <= self.FEW:
            out = np.empty((len(operand.scale), len(self.step)), np.float32)
            integers.product(*operand.arrays[1:], *self.arrays, out)
            return out
        raw = torch.ops.onednn.qlinear_pointwise.default(
            operand.integers, 1.0, self.ZERO, self.weight, self.step, self.no_zeros,
            None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        if self.bias is not None:
            raw.addcdiv_(self.bias, torch.from_numpy(operand.scale)[:, None])
        return raw.numpy()


def linear_for(dtype: torch.dtype, device) -> type[Linear]:
    """The fastest product in this precision that torch has on this machine."""
    if torch.device(device).type != "cpu":
        return Linear
    if dtype == torch.float32:
        return PanelLinear
    onednn = dtype == torch.bfloat16 and torch.backends.mkldnn.is_available()
    return OneDNNLinear if onednn and torch.ops.mkldnn._is_mkldnn_bf16_supported() else Linear
