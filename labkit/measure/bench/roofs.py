"""What this machine reaches at most: bytes/s from memory, FLOP/s of a large product.

Each is the best of five after one that warms up, since noise only ever slows a run down.
"""

import time
from collections.abc import Callable

READ_BYTES = 2**30  # more than most caches hold
SIZE = 2048  # the product of two matrices of SIZE x SIZE
RUNS = 5


def best_of(work: Callable[[], object], runs: int = RUNS) -> float:
    """The shortest of `runs` runs in seconds."""
    work()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def bandwidth() -> tuple[float, str]:
    """Bytes/s at which a float32 matrix of 1 GiB is read, and in words how that was measured."""
    import torch

    columns = 4096
    matrix, vector = torch.ones(READ_BYTES // (4 * columns), columns), torch.ones(columns)
    seconds = best_of(lambda: matrix @ vector)
    return READ_BYTES / seconds, f"matrix @ vector over {READ_BYTES / 1e9:.2f} GB of float32"


def peak(dtype: str) -> tuple[float, str]:
    """FLOP/s (for int8: integer operations/s) of a large product, and which one it was.

    For int8 labkit's own product (`Int8Linear`) with its quantization of the rows; attention,
    which stays in float32, is counted at this peak as well, so the floor is a little too low.
    """
    import torch

    from labkit.model.linear import Int8Linear

    with torch.inference_mode():
        precision = torch.float32 if dtype == "int8" else getattr(torch, dtype)
        left, right = torch.randn(2, SIZE, SIZE).to(precision)
        product = Int8Linear(right) if dtype == "int8" else right.matmul
        seconds = best_of(lambda: product(left))
    kind = "labkit's int8 product" if dtype == "int8" else f"the {dtype} product"
    return 2 * SIZE**3 / seconds, f"{kind} of two {SIZE} x {SIZE} matrices"
