"""Paged attention on a GPU: bytes per second against the card's own copy, and other ways."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from labkit.measure.bench.kernel_cases import paged_case

COPY_BYTES = 2**30
WARM_MS, MEASURE_MS = 25, 100


def milliseconds_of(work: Callable[[], object]) -> float:
    """The median, with the card's caches emptied before each run, as Triton's own tool has it."""
    from triton.testing import do_bench

    return do_bench(work, warmup=WARM_MS, rep=MEASURE_MS, return_mode="median")


def copy_bandwidth(device: str) -> float:
    """Bytes/s of copying 1 GiB on the card: what is read and what is written."""
    source = torch.empty(COPY_BYTES, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / (milliseconds_of(lambda: target.copy_(source)) / 1e3)


def least_bytes(batch, q: torch.Tensor, kv: torch.Tensor) -> int:
    """What decoding reads and writes at the least: each key and value once, q and the result."""
    per_token = 2 * kv.shape[2] * kv.shape[4] * kv.itemsize
    return sum(batch.context_lens) * per_token + 2 * q.nbytes


def gathered(batch, kv: torch.Tensor, group: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values side by side, `[R, heads, tokens, head_dim]`: what SDPA wants to have."""
    own = kv[batch.block_tables].permute(2, 0, 3, 1, 4, 5).flatten(3, 4)
    keys, values = own.nan_to_num()
    return keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)


def rows(
    shapes: list[tuple[int, int]], heads: int, kv_heads: int, head_dim: int, dtype, device: str,
    copy: float,
) -> Iterator[dict]:  # fmt: skip
    """A row for each (requests, context) of a decode step."""
    from torch.nn.attention.flex_attention import flex_attention

    from labkit.kernels.gpu.launch import TritonAttention

    flex = torch.compile(flex_attention, dynamic=False)
    for requests, context in shapes:
        batch, q, kv, _ = paged_case(
            [(context, 1)] * requests, heads, kv_heads, head_dim, 16, dtype, device
        )
        attention, group = TritonAttention(batch), heads // kv_heads
        ours = milliseconds_of(lambda: attention(q, kv))  # noqa: B023, done before the next
        keys, values = gathered(batch, kv, group)
        mask = torch.arange(keys.shape[2], device=device) < context
        queries = q.unsqueeze(2)
        others = {
            "gather": lambda: gathered(batch, kv, group),  # noqa: B023
            "sdpa": lambda: F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask),  # noqa: B023, E501
            "flex": lambda: flex(queries, keys[:, :, :context], values[:, :, :context]),  # noqa: B023
        }
        needed = least_bytes(batch, q, kv)
        yield {
            "requests": requests, "context": context, "ours_ms": ours,
            "bandwidth": needed / (ours / 1e3), "of_copy": needed / (ours / 1e3) / copy,
            **{f"{name}_ms": milliseconds_of(work) for name, work in others.items()},
        }  # fmt: skip
