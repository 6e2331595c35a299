"""How well a model in some precision predicts a fixed text: the price of fewer bits."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

WINDOW = 512  # tokens that are predicted from one another
BLOCK_SIZE = 16
TEXT = Path(__file__).with_name("prose.txt")  # written for this; no model has been trained on it


def perplexity(loaded) -> tuple[float, int]:
    """exp(mean negative log-likelihood) of the fixed text, and how many tokens were predicted.

    `loaded` holds a `Decoder`. The text is cut into windows of 512 tokens that know nothing of
    each other; the first token of each is given, not predicted.
    """
    token_ids = loaded.tokenizer.encode(TEXT.read_text(encoding="utf-8"))
    size = min(WINDOW, loaded.model.config.max_position)
    windows = [token_ids[i : i + size] for i in range(0, len(token_ids), size)]
    losses = [loss for window in windows for loss in window_losses(loaded.model, window)]
    return math.exp(math.fsum(losses) / len(losses)), len(losses)


def window_losses(decoder, token_ids: Sequence[int]) -> list[float]:
    """-ln p of every token but the first, from one pass with the logits of every position."""
    import torch

    from labkit.model.flat_batch import FlatBatch, Span
    from labkit.model.kv_cache import KVCache

    num_blocks = -(-len(token_ids) // BLOCK_SIZE)
    cache = KVCache(decoder.config, num_blocks, BLOCK_SIZE, decoder.dtype, decoder.device)
    span = Span(token_ids, 0, range(num_blocks))
    batch = FlatBatch.build([span], BLOCK_SIZE, decoder.device)
    every_row = torch.arange(len(token_ids), device=decoder.device)
    logits = decoder(replace(batch, logits_rows=every_row), cache)
    targets = batch.token_ids[1:]
    return torch.nn.functional.cross_entropy(logits[:-1], targets, reduction="none").tolist()
