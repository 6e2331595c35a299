"""The products with weights, where a decode step spends its time.

Each kind is called as `product(x, row_scale, add)` and returns
`(x * row_scale) @ weight.T + bias + add`: `x` `[T, in]`, `row_scale` `[T, 1]` (float32) or None,
`add` `[T, out]` or None. What surrounds a product is done together with it, since on a CPU every
call costs: the product before has pushed all else out of the nearest caches.
"""

import torch
import torch.nn.functional as F

from labkit.model.checkpoint import ModelError


class Linear:
    """As torch does it: on every device, in every precision."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        self.weight, self.bias = weight, bias

    def __call__(self, x, row_scale=None, add=None) -> torch.Tensor:
        out = F.linear(scaled(x, row_scale), self.weight, self.bias)
        return out if add is None else out.add_(add)


class PackedLinear:
    """For a CPU: the weight is brought once into the order in which oneDNN reads it.

    `F.linear` does that again for every call; on 4 to 16 rows that takes as long as the product.
    """

    EXPECTED_ROWS = 64  # oneDNN chooses its order for so many rows; for 4 and 256 it is good, too

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, self.EXPECTED_ROWS)
        self.bias = bias

    def __call__(self, x, row_scale=None, add=None) -> torch.Tensor:
        x = scaled(x, row_scale)
        if add is None:
            return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return torch.ops.mkldnn._linear_pointwise.binary(x, add, self.weight, self.bias, "add")


class Int8Linear:
    """8-bit integers on both sides: a quarter of the bytes, and sums without rounding.

    The weight has one scale per output channel, `x` one per row. With one scale for all of `x`,
    as torch's own dynamic quantization has it, a large number in one request's row would
    coarsen its neighbours' rows, and an answer would depend on who else is in the batch.

    `x` is stored from 0 to 2 * ZERO, the weight from -127 to 127: so oneDNN multiplies fastest.
    """

    # Without the VNNI instructions two products are added in 16 bits, which must not overflow.
    ZERO = 127 if torch.cpu._is_vnni_supported() else 63

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        weight = weight.float()
        scale = weight.abs().amax(dim=1, keepdim=True).clamp_(min=1e-20) / 127
        try:
            self.weight = torch.ops.onednn.qlinear_prepack(
                (weight / scale).round_().to(torch.int8), None
            )
        except (RuntimeError, AttributeError) as error:
            raise ModelError(
                f"dtype int8 needs torch with oneDNN's integer products ({error}); use float32"
            ) from error
        self.scale, self.bias = scale.flatten() / self.ZERO, bias
        self.middle = torch.full((1, 1), self.ZERO + 0.5)
        self.weight_zeros = torch.zeros(len(weight), dtype=torch.int32)

    def __call__(self, x, row_scale=None, add=None) -> torch.Tensor:
        """The row scale of `x` costs nothing: it goes into the scale of the quantized row."""
        quantized, largest = quantize_rows(x, self.ZERO, self.middle)
        out = torch.ops.onednn.qlinear_pointwise(
            quantized, 1.0, self.ZERO, self.weight, self.scale, self.weight_zeros,
            None, 1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        scale = scaled(largest, row_scale)
        out = out.mul_(scale) if add is None else torch.addcmul(add, out, scale)
        return out if self.bias is None else out.add_(self.bias)


def scaled(x: torch.Tensor, row_scale: torch.Tensor | None) -> torch.Tensor:
    """Every row of `x` times its scale, in the precision of `x`."""
    return x if row_scale is None else (x * row_scale).to(x.dtype)


def quantize_rows(
    x: torch.Tensor, zero: int, middle: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x` `[rows, n]` as uint8, and the largest size of a number in each row, `[rows, 1]`.

    `x ≈ (uint8 - zero) * largest / zero`, within half a step: `middle` `[1, 1]` is zero + 0.5,
    and what is behind the point is then cut off.
    """
    largest = x.abs().amax(dim=1, keepdim=True).clamp_(min=1e-20)
    return torch.addcdiv(middle, x, largest, value=zero).to(torch.uint8), largest


def can_pack(dtype: torch.dtype, device) -> bool:
    """Whether oneDNN has a product in this precision on this machine."""
    if torch.device(device).type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype == torch.float32
