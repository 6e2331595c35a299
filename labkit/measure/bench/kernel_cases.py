"""Random paged batches with a float64 oracle: how far each kernel is from the definition.

    python -m labkit.measure.bench.kernel_cases     [dtypes, head sizes] in, JSON lines out: the
                                                    table, by the interpreter
"""

import json
import os
import random
import sys
from collections.abc import Iterator

import torch

from labkit.model.flat_batch import FlatBatch, Span

LENGTHS = {  # context and new tokens of each request
    "decode": [(1, 1), (15, 1), (16, 1), (17, 1), (130, 1), (513, 1)],
    "prefill": [(5, 5), (64, 64), (65, 2), (17, 17), (100, 33)],
    "mixed": [(1, 1), (37, 5), (129, 1), (64, 64)],
}
DTYPES = ("float32", "bfloat16", "float16")
HEAD_DIMS = (64, 80, 96, 128)


def paged_case(lengths, heads, kv_heads, head_dim, block_size, dtype, device, seed=0):
    """A batch with shuffled blocks: (batch, q, kv, keys and values of each request).

    What no request has written is NaN: whoever reads it shows it.
    """
    draw = torch.Generator().manual_seed(seed)
    counts = [-(-context // block_size) for context, _ in lengths]
    free = [*range(sum(counts) + 2)]
    random.Random(seed).shuffle(free)
    kv = torch.full((len(free), 2, kv_heads, block_size, head_dim), float("nan"))
    own, spans = [], []
    for (context, new), count in zip(lengths, counts, strict=True):
        table = [free.pop() for _ in range(count)]
        numbers = torch.randn(2, context, kv_heads, head_dim, generator=draw)
        places = torch.arange(context)
        blocks = torch.tensor(table)[places // block_size]
        for kind in (0, 1):
            kv[blocks, kind, :, places % block_size] = numbers[kind]
        own.append(numbers.to(dtype))
        spans.append(Span([0] * new, context - new, table))
    q = torch.randn(sum(new for _, new in lengths), heads, head_dim, generator=draw)
    batch = FlatBatch.build(spans, block_size, device)
    return batch, q.to(device, dtype), kv.to(device, dtype), own


def oracle(batch, q: torch.Tensor, own: list[torch.Tensor]) -> torch.Tensor:
    """Softmax attention in float64, on the CPU, from the rounded numbers: like `q`."""
    rows, starts = [], batch.query_start.tolist()
    for r, numbers in enumerate(own):
        group = q.shape[1] // numbers.shape[2]
        keys, values = numbers.double().repeat_interleave(group, dim=2)
        queries = q[starts[r] : starts[r + 1]].cpu().double()
        scores = torch.einsum("qhd,khd->hqk", queries, keys) / q.shape[2] ** 0.5
        position = torch.arange(len(keys) - len(queries), len(keys)).unsqueeze(1)
        scores[:, torch.arange(len(keys)) > position] = float("-inf")
        rows.append(torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), values))
    return torch.cat(rows)


def errors(device: str, dtypes=DTYPES, head_dims=HEAD_DIMS) -> Iterator[dict]:
    """The largest error of the Triton kernels for every dtype, head size and kind of batch, as a
    share of the result where that is above 1."""
    from labkit.kernels.gpu.launch import TritonAttention

    for dtype in dtypes:
        for head_dim in head_dims:
            row = {"dtype": dtype, "head_dim": head_dim}
            for kind, lengths in LENGTHS.items():
                batch, q, kv, own = paged_case(
                    lengths, 6, 2, head_dim, 16, getattr(torch, dtype), device
                )
                wanted = oracle(batch, q, own)
                difference = (TritonAttention(batch)(q, kv).cpu().double() - wanted).abs()
                row[kind] = (difference / wanted.abs().clamp(min=1)).max().item()
            yield row


def main() -> int:
    from labkit.kernels.gpu import interpreted

    if not interpreted.is_on():
        print("set TRITON_INTERPRET=1 before this process starts", file=sys.stderr)
        return 2
    interpreted.mend_products()
    for row in errors("cpu", *json.load(sys.stdin)):
        print(json.dumps(row), flush=True)
    return 0


def in_environment(interpret: bool) -> dict[str, str]:
    """The variables of a child process that interprets the kernels, or compiles them."""
    kept = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    return kept | ({"TRITON_INTERPRET": "1"} if interpret else {})


if __name__ == "__main__":
    sys.exit(main())
