"""Products in float32 with a matrix that lies in panels, in the order in which they read it.

For 1 to 64 rows, as in a decode step, this takes 0.5 to 0.9 of the time of Intel's oneMKL with a
matrix packed in its own order, and is no slower for a chunk of 512 (2 cores, AVX-512): a panel is
asked from memory while the one before is multiplied.
"""

import numpy as np
import torch
from numba import prange

from labkit.kernels import loops
from labkit.kernels.large_pages import in_large_pages
from labkit.kernels.tiles import ENTRY, MOST_ROWS, WIDTH, tile_of

MOST_PASSES = 8  # on AVX2 down_proj of 512 rows takes half as long without asking ahead

most_rows, four_rows, two_rows, one_row = map(tile_of, (MOST_ROWS, 4, 2, 1))


class Panels:
    """A weight `[out, in]` in panels, `[out / WIDTH, in, WIDTH]` (float32), and a bias `[out]`.

    Raises ValueError for a weight of no columns.

    What the last panel lacks is filled up with zeros. `address` and `bias` (an array) are what
    `product` takes.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None):
        self.outputs, self.inputs = weight.shape
        if self.inputs == 0:
            raise ValueError(f"a weight is {list(weight.shape)}; at least 1 column is needed")
        whole, rest = divmod(self.outputs, WIDTH)
        self.panels = in_large_pages((whole + (rest > 0), self.inputs, WIDTH))
        rows = weight[: whole * WIDTH].view(whole, WIDTH, self.inputs)
        self.panels[:whole] = rows.transpose(1, 2)
        if rest:
            self.panels[whole, :, :rest] = weight[whole * WIDTH :].T
        self.bias = np.zeros(len(self.panels) * WIDTH, np.float32)
        if bias is not None:
            self.bias[: self.outputs] = bias.float().numpy()

    @property
    def address(self) -> int:
        return self.panels.data_ptr()


@loops.compiled
def multiply_panel(x, panel, start, out, next_panel):
    """out = start + x @ panel, for `x` `[T, in]` and `out` `[T, WIDTH]`, rows at any distance.

    `panel`, `[in, WIDTH]`, and `start`, `[WIDTH]`, are given by address. Each pass through the
    panel asks for its share of the next one, unless there are many passes: then the next one
    comes soon enough by itself, and would only push x out of the cache.
    """
    rows, depth = x.shape
    whole, rest = divmod(rows, MOST_ROWS)
    passes = whole + (rest >> 2) + (rest >> 1 & 1) + (rest & 1)
    step = ENTRY * WIDTH // max(passes, 1) + 1
    if passes > MOST_PASSES:
        next_panel, step = panel, 0
    a, da, c, dc = x.ctypes.data, x.strides[0], out.ctypes.data, out.strides[0]
    while rows > 0:
        if rows >= MOST_ROWS:
            done = MOST_ROWS
            most_rows(a, da, panel, start, c, dc, depth, next_panel, step)
        elif rows >= 4:
            done = 4
            four_rows(a, da, panel, start, c, dc, depth, next_panel, step)
        elif rows >= 2:
            done = 2
            two_rows(a, da, panel, start, c, dc, depth, next_panel, step)
        else:
            done = 1
            one_row(a, da, panel, start, c, dc, depth, next_panel, step)
        rows -= done
        a += done * da
        c += done * dc
        next_panel += depth * step


@loops.compiled
def multiply_columns(x, panels, size, start, out, p):
    """The columns of `out = start + x @ panels` that panel `p` gives.

    `panels`, an address, lie `size` bytes apart.
    """
    panel, begin = np.int64(panels) + p * size, start.ctypes.data + p * ENTRY * WIDTH
    left = out.shape[1] - p * WIDTH
    next_panel = panel + size if left > WIDTH else panel
    if left >= WIDTH:
        columns = out[:, p * WIDTH : (p + 1) * WIDTH]
        multiply_panel(x, panel, begin, columns, next_panel)
    else:  # the last panel is filled up; a part of a matrix, for the compiler, as above
        columns = np.empty((len(x), 2 * WIDTH), np.float32)[:, :WIDTH]
        multiply_panel(x, panel, begin, columns, next_panel)
        for t in range(len(x)):
            for i in range(left):
                out[t, p * WIDTH + i] = columns[t, i]


@loops.compiled(parallel=True)
def product(x, panels, bias, out):
    """out = x @ weight.T + bias; the panels of the weight by address, as `Panels` has them."""
    for p in prange((out.shape[1] + WIDTH - 1) // WIDTH):
        multiply_columns(x, panels, ENTRY * WIDTH * x.shape[1], bias, out, p)
