"""The tokens of one step, of all requests, in one row without padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch


@dataclass(frozen=True)
class Span:
    """One request's part of a step: `token_ids` stand at positions `start` and following.

    `block_table` covers every token up to the last of these. `samples` asks for the logits
    after the last one.
    """

    token_ids: Sequence[int]
    start: int
    block_table: Sequence[int]
    samples: bool = True

    @property
    def context_len(self) -> int:
        return self.start + len(self.token_ids)


def slots_of(block_table: Sequence[int], start: int, end: int, block_size: int) -> list[int]:
    """The slots of a sequence's tokens at positions `start` to `end` (exclusive).

    A slot is room for the keys and values of one token: slot s is place s % block_size of block
    s // block_size. Block i of the table holds the positions from i * block_size on.
    """
    slots = []
    for position in range(start, end):
        index, offset = divmod(position, block_size)
        slots.append(block_table[index] * block_size + offset)
    return slots


def refuse_short_tables(spans: Sequence[Span], block_size: int) -> None:
    """ValueError when a block table has no room for its span."""
    for span in spans:
        if span.context_len > len(span.block_table) * block_size:
            raise ValueError(
                f"{span.context_len} tokens do not fit in {len(span.block_table)} blocks "
                f"of {block_size}"
            )


def on_device(numbers, device) -> torch.Tensor:
    """A list of whole numbers, or of rows of them, as int64 on a device."""
    return torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=True)


@dataclass
class FlatBatch:
    """What the model reads. T tokens of R requests, one after the other.

    Integers are int64 and lie on one device; `query_lens` and `context_lens` stay lists, since
    kernels are chosen by them.
    """

    token_ids: torch.Tensor  # [T]
    positions: torch.Tensor  # [T], of each token in its own sequence
    slot_mapping: torch.Tensor  # [T], where its key and value go: block * block_size + offset
    block_tables: torch.Tensor  # [R, max_blocks], filled up with block 0
    query_start: torch.Tensor  # [R + 1]: request r has the tokens query_start[r] to [r + 1]
    logits_rows: torch.Tensor  # [R_sampled], the tokens after which a logit row is wanted
    query_lens: list[int]  # [R], new tokens of each
    context_lens: list[int]  # [R], tokens that its last query sees, itself included
    block_size: int

    @classmethod
    def build(cls, spans: Sequence[Span], block_size: int, device="cpu") -> "FlatBatch":
        """Lays the spans side by side; what each field holds stands at the class.

        `block_tables` is as wide as the longest context needs: a table that has more is cut, one
        that has less is filled up with block 0. `logits_rows` has the last row of each span that
        `samples`. ValueError when a block table is too short for its span.
        """
        refuse_short_tables(spans, block_size)
        width = max(-(-s.context_len // block_size) for s in spans)
        tables = [
            [*s.block_table[:width], *[0] * (width - len(s.block_table))] for s in spans
        ]
        ranges = [(s.block_table, s.start, s.context_len) for s in spans]
        slots = [slot for one in ranges for slot in slots_of(*one, block_size)]
        query_start = [0, *accumulate(len(s.token_ids) for s in spans)]
        rows = [end - 1 for s, end in zip(spans, query_start[1:], strict=True) if s.samples]
        return cls(
            token_ids=on_device([t for s in spans for t in s.token_ids], device),
            positions=on_device([p for _, *ends in ranges for p in range(*ends)], device),
            slot_mapping=on_device(slots, device),
            block_tables=on_device(tables, device),
            query_start=on_device(query_start, device),
            logits_rows=on_device(rows, device),
            query_lens=[len(s.token_ids) for s in spans],
            context_lens=[s.context_len for s in spans],
            block_size=block_size,
        )
