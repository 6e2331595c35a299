"""Decode steps on a GPU without the cost of starting every kernel: CUDA graphs.

A decode step of a small model is a thousand kernels of a few microseconds, and the CPU needs
longer to start one than the GPU to run it. A graph records them once, for one size of batch,
with fixed addresses; a replay starts all of them with one call.
"""

from dataclasses import replace

import torch

from labkit.model.flat_batch import FlatBatch
from labkit.model.kv_cache import KVCache

SIZES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # batches are filled up to one of these


class GraphDecoder:
    """A `Decoder` that replays steps in which every request has one new token.

    Other steps run as they come. A batch is filled up with requests that write to the last slot
    of the cache, in a block that nobody is given (`spare_blocks`). ValueError without CUDA.
    """

    spare_blocks = 1

    def __init__(self, decoder):
        if decoder.device.type != "cuda":
            raise ValueError(
                f"cuda_graphs is for a GPU, and the model is on {str(decoder.device)!r}; "
                "leave it out, or load with device='cuda'"
            )
        self.decoder, self.config = decoder, decoder.config
        self.dtype, self.device = decoder.dtype, decoder.device
        self.graphs: dict[tuple[int, int], tuple] = {}  # (requests, blocks) → graph, in, out

    def __call__(self, batch: FlatBatch, cache: KVCache) -> torch.Tensor:
        size = next((s for s in SIZES if s >= len(batch.query_lens)), None)
        if max(batch.query_lens) > 1 or size is None:
            return self.decoder(batch, cache)
        width = 1 << (batch.block_tables.shape[1] - 1).bit_length()  # a power of two
        if (size, width) not in self.graphs:
            self.graphs[size, width] = self.capture(size, width, cache)
        graph, static, logits = self.graphs[size, width]
        count = len(batch.query_lens)
        spare = cache.num_blocks * cache.block_size - 1
        for name, filler in [("token_ids", 0), ("positions", 0), ("slot_mapping", spare)]:
            target = getattr(static, name)
            target.fill_(filler)
            target[:count].copy_(getattr(batch, name))
        static.block_tables.zero_()
        static.block_tables[:count, : batch.block_tables.shape[1]].copy_(batch.block_tables)
        graph.replay()
        return logits[:count].clone()[batch.logits_rows]

    def capture(self, size: int, width: int, cache: KVCache) -> tuple:
        """Records a step of `size` requests with up to `width` blocks each."""
        device, spare = self.device, cache.num_blocks * cache.block_size - 1

        def full(shape, value):
            return torch.full(shape, value, dtype=torch.int64, device=device)

        static = FlatBatch(
            token_ids=full((size,), 0),
            positions=full((size,), 0),
            slot_mapping=full((size,), spare),
            block_tables=full((size, width), 0),
            query_start=torch.arange(size + 1, device=device),
            logits_rows=torch.arange(size, device=device),
            query_lens=[1] * size,
            context_lens=[width * cache.block_size] * size,
            block_size=cache.block_size,
        )
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):  # a run before recording, so that libraries are set up
            self.decoder(replace(static), cache)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self.decoder(static, cache)
        return graph, static, logits
