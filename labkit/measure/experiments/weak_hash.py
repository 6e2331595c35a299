"""Notebook 04, what breaks: a prefix cache whose blocks are named by a weak hash."""

from collections.abc import Sequence

from labkit.engine.books import Books
from labkit.engine.request import Request

BASE, PRIME = 31, 2**31 - 1


def polynomial_hash(total: int, token_ids: Sequence[int]) -> int:
    """The hash of everything so far, `total`, and `token_ids` after it.

    A polynomial in BASE, as many programs hash text. One less at some place and BASE more at the
    next is the same number: anybody can write two prompts with one hash. Megatron-LM's inference
    had such a hash until 2026 (NVIDIA/Megatron-LM, pull request 4158).
    """
    for token_id in token_ids:
        total = (BASE * total + token_id) % PRIME
    return total


def twin(token_ids: Sequence[int], vocab: int) -> list[int]:
    """Other tokens with the same polynomial hash, as long as `token_ids` and inside `vocab`."""
    found = list(token_ids)
    for i in range(0, len(found) - 1, 2):
        if found[i] > 0 and found[i + 1] + BASE < vocab:
            found[i] -= 1
            found[i + 1] += BASE
    return found


class WeakBooks(Books):
    """The books of the blocks, but for the names: the polynomial in place of BLAKE2b."""

    def hashes(self, request: Request, count: int) -> list[bytes]:
        size, total, names = self.pool.block_size, 0, []
        for i in range(count):
            total = polynomial_hash(total, request.tokens_between(i * size, (i + 1) * size))
            names.append(total.to_bytes(4, "big"))
        return names
