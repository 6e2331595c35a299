"""Rung 2: four requests at a time, still without a cache.

One pass over a batch reads the weights once for all of its rows. The rows of a tensor are equally
long, so short requests are padded, and the batch goes on until its longest request has ended.
"""

from collections.abc import Iterable, Sequence

import torch

from labkit.engine.batches import BatchEngine
from labkit.engine.request import Request


def left_pad(sequences: Sequence[list[int]], pad_token_id: int) -> tuple[list, list]:
    """Rows of equal length: `pad_token_id` before each shorter sequence.

    Returns `(token_ids, attention_mask)`, two lists of equally long rows; the mask is 1 at a
    token and 0 at padding. The padding stands on the left so that the last column holds the
    last token of every row: that is where the next one is read off. `sequences` stay as they are.
    """
    longest = max(len(sequence) for sequence in sequences)
    token_ids = [[pad_token_id] * (longest - len(s)) + list(s) for s in sequences]
    mask = [[0] * (longest - len(s)) + [1] * len(s) for s in sequences]
    return token_ids, mask


def positions_of(attention_mask: torch.Tensor) -> torch.Tensor:
    """The position of each token in its own sequence, whatever padding stands before it.

    `attention_mask` is `[rows, columns]` of 0 and 1 (int64), and so is the result. The first
    token of a row has position 0. Padding gets 0 too; nobody looks at it.
    """
    return (attention_mask.cumsum(dim=1) - 1).clamp(min=0)


def next_logits(model, sequences: Sequence[list[int]], pad_token_id: int) -> torch.Tensor:
    """Scores of the token after each sequence: `[len(sequences), vocab]`, one forward pass.

    Every token of every sequence goes through the model again (`use_cache=False`), padding too.
    `model` is called as those of `transformers`: `input_ids`, `attention_mask` and
    `position_ids` are tensors `[rows, columns]` on `model.device`, and its output has `logits`.
    They are made for the last column only (`logits_to_keep=1`, `[rows, 1, vocab]`), since each
    is as wide as the vocabulary. No gradients are kept.
    """
    token_ids, mask = left_pad(sequences, pad_token_id)
    attention_mask = torch.tensor(mask, device=model.device)
    with torch.inference_mode():
        logits = model(
            input_ids=torch.tensor(token_ids, device=model.device),
            attention_mask=attention_mask,
            position_ids=positions_of(attention_mask),
            use_cache=False,
            logits_to_keep=1,
        ).logits
    return logits[:, -1]


class StaticEngine(BatchEngine):
    """Serves its requests in batches of `batch_size`, left-padded, each to its end.

    `model` is a `transformers` causal language model. Rows of finished requests are computed on
    with the others, for nothing.
    """

    def __init__(self, model, eos_token_ids: Iterable[int], batch_size: int = 4, **options):
        super().__init__(eos_token_ids, batch_size, **options)
        self.model = model
        self.pad_token_id = min(self.eos_token_ids, default=0)  # any token: nobody looks at it

    def next_logits(self, running: list[Request]) -> torch.Tensor:
        rows = [row for row, request in enumerate(self.batch) if request in running]
        sequences = [request.token_ids for request in self.batch]
        return next_logits(self.model, sequences, self.pad_token_id)[rows].float()
