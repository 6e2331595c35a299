"""Stand-ins for notebook 03: a decoder that reads every token from the cache, and its shapes."""

from types import SimpleNamespace

import torch

from labkit.workbook.fakes import ScriptedModel

CONFIG = SimpleNamespace(num_layers=1, num_kv_heads=1, head_dim=2)


class RememberingDecoder:
    """A decoder whose keys are token ids: what follows is the arithmetic of `ScriptedModel`.

    It knows of earlier tokens only what stands in the cache, so a wrong row, or one that has not
    been filled, is heard in the answer. `fed` has the number of new tokens of every step.
    """

    config, dtype, device, vocab = CONFIG, torch.float32, torch.device("cpu"), ScriptedModel.vocab

    def __init__(self):
        self.fed: list[int] = []

    def __call__(self, batch, cache) -> torch.Tensor:
        """Logits `[R, vocab]`, as the real one gives them when every request samples."""
        self.fed.append(len(batch.token_ids))
        keys = cache.layers[0][:, 0, 0, :, 0]  # [num_blocks, block_size]
        for slot, token_id in zip(batch.slot_mapping.tolist(), batch.token_ids, strict=True):
            keys[slot // cache.block_size, slot % cache.block_size] = token_id.float()
        logits = torch.zeros(len(batch.context_lens), self.vocab)
        for row, length in enumerate(batch.context_lens):
            seen = keys[batch.block_tables[row]].flatten()[:length]
            logits[row, ScriptedModel.after([int(token_id) for token_id in seen])] = 1.0
        return logits
