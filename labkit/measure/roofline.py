"""The roofline: the least time a step can take on a machine, from two measured speeds.

Units are base units throughout: FLOP, bytes, seconds, FLOP/s, bytes/s. One multiplication and
one addition are 2 FLOP. The idea is from Williams, Waterman and Patterson, "Roofline: an
insightful visual performance model" (2009).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass


def step_time(
    num_flops: float, num_bytes: float, peak_flops: float, bandwidth: float
) -> tuple[float, str]:
    """The least time that a step can take, and what holds it back.

    A step computes `num_flops` (FLOP) and moves `num_bytes` (bytes, may be 0) from memory. The
    machine computes at most `peak_flops` (FLOP/s) and moves at most `bandwidth` (bytes/s), and
    does both at the same time, so the slower of the two decides.

    Returns `(seconds, bound)`: `bound` is "compute" when computing takes longer, else "memory",
    also when both take equally long.
    """
    compute_time = num_flops / peak_flops
    memory_time = num_bytes / bandwidth
    if compute_time > memory_time:
        return compute_time, "compute"
    return memory_time, "memory"


@dataclass(frozen=True)
class Machine:
    """What a machine reaches at most, as measured: the two roofs."""

    peak_flops: float  # FLOP/s
    bandwidth: float  # bytes/s

    @property
    def ridge(self) -> float:
        """The intensity (FLOP per byte) from which on computing holds a step back."""
        return self.peak_flops / self.bandwidth


@dataclass(frozen=True)
class Cost:
    """What one forward pass needs at least."""

    num_flops: float  # FLOP
    num_bytes: float  # bytes

    @property
    def intensity(self) -> float:
        """FLOP done for each byte moved: the x axis of a roofline."""
        return self.num_flops / self.num_bytes


def forward_cost(config, num_new: int, num_cached: int = 0, bytes_per_number: int = 4) -> Cost:
    """The cost of one forward pass over `num_new` tokens after `num_cached` in the KV cache.

    A decode step with a cache is `num_new=1`; a pass without one has `num_cached=0`. `config`
    is the configuration of a Llama-family model as `transformers` has it. `bytes_per_number`
    is 4 for float32, 2 for bfloat16.

    Counted are the matrix products (q, k, v, o, gate, up and down in each layer, and logits for
    every new token), 2 FLOP for each weight and new token; attention of each new token to all
    before it and itself, 4 * heads * head_dim FLOP a layer for each such pair (scores, then the
    weighted sum); each weight read once, whatever the number of tokens; and keys and values of
    all tokens, read or written once. Looking a token up in the embedding costs nothing.
    Activations are left out, so the bytes are a lower bound. A config without `head_dim`, or with
    None, means `hidden_size` divided by the heads.
    """
    layers, hidden, vocab = config.num_hidden_layers, config.hidden_size, config.vocab_size
    head_dim = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    query_width = config.num_attention_heads * head_dim
    kv_width = config.num_key_value_heads * head_dim

    projections = 2 * hidden * query_width + 2 * hidden * kv_width  # q and o, k and v
    mlp = 3 * hidden * config.intermediate_size  # gate, up, down
    num_weights = layers * (projections + mlp) + hidden * vocab

    # Token i of the new ones attends to the cached ones, to those before it, and to itself.
    num_pairs = num_new * num_cached + num_new * (num_new + 1) // 2
    attention_flops = layers * 4 * query_width * num_pairs  # scores, then the weighted sum
    kv_numbers = layers * 2 * kv_width * (num_cached + num_new)
    return Cost(
        num_flops=2 * num_weights * num_new + attention_flops,
        num_bytes=bytes_per_number * (num_weights + kv_numbers),
    )


def measure_machine(device: str = "cpu") -> Machine:
    """Measures both roofs of a device, "cpu" or "cuda", in float32; takes a second or two."""
    return Machine(measure_matmul_flops(device=device), measure_bandwidth(device=device))


def measure_bandwidth(num_bytes: int = 512 * 2**20, device: str = "cpu") -> float:
    """Bytes/s at which a matrix is read from memory when it is multiplied with one vector.

    That is what decoding one sequence does with every weight. The matrix is larger than a
    processor's caches. The best of several runs, since noise only ever slows a run down; on a CPU
    by torch or by labkit's own product, whichever is faster: a roof is what nothing exceeds.
    """
    import torch

    columns = 4096
    matrix = torch.ones(num_bytes // (4 * columns), columns, device=device)
    vector = torch.ones(columns, device=device)
    seconds = _best_seconds(lambda: matrix @ vector, device)
    if device == "cpu":
        own, row = _own_product(matrix[: len(matrix) // 2]), vector[None]  # half: it is a copy
        seconds = min(seconds, 2 * _best_seconds(lambda: own(row), device))
    return num_bytes / seconds


def measure_matmul_flops(size: int = 2048, device: str = "cpu") -> float:
    """FLOP/s of a product of two `size` × `size` matrices in float32, best of several runs.

    On a CPU by torch or by labkit's own product, whichever is faster.
    """
    import torch

    left, right = torch.ones(size, size, device=device), torch.ones(size, size, device=device)
    seconds = _best_seconds(lambda: left @ right, device)
    if device == "cpu":
        own = _own_product(right)
        seconds = min(seconds, _best_seconds(lambda: own(left), device))
    return 2 * size**3 / seconds


def _own_product(weight):
    """The product of labkit's decoder with a weight, on a CPU in float32."""
    from labkit.model.linear import PanelLinear

    return PanelLinear(weight)


def measure_forward(model, num_new: int, num_cached: int = 0) -> float:
    """Seconds of the pass that `forward_cost` counts, on a `transformers` model, best of several.

    On the device where the model is. Which tokens go through makes no difference to the time, so
    all are token 1.
    """
    import torch
    from transformers import DynamicCache

    def ones(count: int):
        return torch.ones(1, count, dtype=torch.long, device=model.device)

    new_ids = ones(num_new)
    with torch.inference_mode():
        if num_cached == 0:
            return _best_seconds(lambda: model(input_ids=new_ids, use_cache=False), model.device)
        cache = DynamicCache(config=model.config)
        model(input_ids=ones(num_cached), cache=cache, use_cache=True)

        def decode():
            model(input_ids=new_ids, cache=cache, use_cache=True)
            cache.crop(-num_new)  # forget them, so that every run finds the same cache

        return _best_seconds(decode, model.device)


def _best_seconds(work: Callable[[], object], device, runs: int = 8) -> float:
    """The shortest of `runs` runs, after one that warms up; fewer when they take over 2 s.

    A GPU is waited for, since it gets its work and goes on by itself.
    """
    import torch

    def wait() -> None:
        if torch.device(device).type == "cuda":
            torch.cuda.synchronize(device)

    work()
    times: list[float] = []
    while len(times) < runs and sum(times) < 2.0:
        wait()
        start = time.perf_counter()
        work()
        wait()
        times.append(time.perf_counter() - start)
    return min(times)
