"""KV slots that are reserved and stay empty: what the size of a block costs."""

from collections.abc import Sequence

SIZES = (8, 16, 32, 64, 128)


def stored(num_prompt_tokens: int, num_output_tokens: int) -> int:
    """Slots that a request fills until its end: its last token is never fed back."""
    return num_prompt_tokens + num_output_tokens - 1


def by_arithmetic(lengths: Sequence[int], sizes: Sequence[int] = SIZES) -> list[dict]:
    """A row for each block size: the empty slots of requests that fill `lengths` slots.

    unused = blocks * block_size - length with blocks = ceil(length / block_size); the share is
    of all reserved slots.
    """
    return [row(size, [(-(-n // size) * size, n) for n in lengths], "computed") for size in sizes]


def row(block_size: int, pairs: Sequence[tuple[int, int]], source: str) -> dict:
    """One row of the table from (reserved, filled) slots of each request."""
    reserved, filled = (sum(column) for column in zip(*pairs, strict=True))
    return {
        "block_size": block_size,
        "unused_mean": (reserved - filled) / len(pairs),
        "unused_share": (reserved - filled) / reserved,
        "source": source,
    }


class EndWatch:
    """Notes for each request of a scheduler what it held in its last step: (reserved, filled).

    `commit` frees the blocks of requests that end, so it is looked at just before.
    """

    def __init__(self, scheduler):
        self.pairs: dict[str, tuple[int, int]] = {}
        commit, size = scheduler.commit, scheduler.pool.block_size

        def watched(plan, sampled, now):
            for name, chunk in plan.chunks.items():
                self.pairs[name] = len(chunk.request.block_table) * size, chunk.end
            return commit(plan, sampled, now)

        scheduler.commit = watched
