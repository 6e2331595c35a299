"""The products with weights, where a decode step spends its time.

Each kind is called with `x` `[T, in]` and returns `x @ weight.T + bias`, `[T, out]`, plus `add`
(same shape) when given.
"""

import torch
import torch.nn.functional as F


class Linear:
    """As torch does it: on every device, in every precision."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        self.weight, self.bias = weight, bias

    def __call__(self, x: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        out = F.linear(x, self.weight, self.bias)
        return out if add is None else out.add_(add)


class PackedLinear:
    """For a CPU: the weight is brought once into the order in which oneDNN reads it.

    `F.linear` does that again for every call; on 4 to 16 rows that takes as long as the product.
    """

    EXPECTED_ROWS = 16  # oneDNN chooses its order for so many rows; others are right, too

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, self.EXPECTED_ROWS)
        self.bias = bias

    def __call__(self, x: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        if add is None:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return torch.ops.mkldnn._linear_pointwise.binary(x, add, self.weight, self.bias, "add")


class Int8Linear:
    """8-bit integers on both sides: a quarter of the bytes, and products without rounding.

    The weight has one scale per output channel, `x` one per row. With one scale for all of `x`,
    as torch's own dynamic quantization has it, a large number in one request's row would
    coarsen its neighbours' rows, and an answer would depend on who else is in the batch.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        self.weight, scale = quantize_rows(weight.float())
        self.scale, self.bias = scale.view(1, -1), bias

    def __call__(self, x: torch.Tensor, add: torch.Tensor | None = None) -> torch.Tensor:
        quantized, scale = quantize_rows(x)
        out = torch._int_mm(quantized, self.weight.t()) * self.scale  # int32 → float32
        if self.bias is not None:
            return out.mul_(scale).add_(self.bias if add is None else add + self.bias)
        return out.mul_(scale) if add is None else torch.addcmul(add, out, scale)


def quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`x` `[rows, n]` as int8 and a scale `[rows, 1]`: `x ≈ int8 * scale`, within half a scale.

    The largest number of a row becomes ±127.
    """
    largest = torch.linalg.vector_norm(x, ord=float("inf"), dim=1, keepdim=True)
    scale = largest.clamp_(min=1e-20).mul_(1 / 127)
    return (x / scale).round_().to(torch.int8), scale


def can_pack(dtype: torch.dtype, device) -> bool:
    """Whether oneDNN has a product in this precision on this machine."""
    if torch.device(device).type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32
