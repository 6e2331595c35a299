"""The state of a block pool: who holds which block, how full it is, what is wrong, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from labkit.workbook.figures.schedule_words import named


@dataclass(frozen=True)
class XRay:
    """A pool at one moment. `tables` and `lengths` are by request: block ids, tokens in them.

    `cached` are free blocks whose contents can still be found. `bad` is an access that is
    wrong: (request, position of the token). `note` says what has just happened.
    """

    block_size: int
    num_blocks: int
    tables: Mapping[str, Sequence[int]]
    lengths: Mapping[str, int]
    cached: frozenset[int] | set[int] = field(default_factory=frozenset)
    bad: tuple[str, int] | None = None
    note: str = ""

    @property
    def owners(self) -> dict[int, list[str]]:
        """Block → the requests that hold it."""
        found: dict[int, list[str]] = {}
        for name, table in self.tables.items():
            for block in table:
                found.setdefault(block, []).append(name)
        return found

    def filled(self, name: str, index: int) -> int:
        """Slots with a token in block `index` of a request's table."""
        left = self.lengths.get(name, 0) - index * self.block_size
        return min(max(left, 0), self.block_size)

    @property
    def fills(self) -> dict[int, int]:
        """Block → slots with a token, of all blocks that are held."""
        found: dict[int, int] = {}
        for name, table in self.tables.items():
            for index, block in enumerate(table):
                found[block] = max(found.get(block, 0), self.filled(name, index))
        return found


def xray_of(pool, requests, bad: tuple[str, int] | None = None, note: str = "") -> XRay:
    """The X-ray of a `BlockPool` and of the requests that hold blocks of it, as they are now."""
    hashes = getattr(pool, "hash_of", [None] * pool.num_blocks)
    cached = {b for b in range(pool.num_blocks) if hashes[b] and pool.ref_counts[b] == 0}
    tables = {r.request_id: tuple(r.block_table) for r in requests}
    lengths = {r.request_id: r.num_computed_tokens for r in requests}
    return XRay(pool.block_size, pool.num_blocks, tables, lengths, frozenset(cached), bad, note)


def judged(xray: XRay) -> tuple[int | None, str]:
    """The block that the bad access hits (None if it hits none), and what is wrong, in words."""
    name, position = xray.bad
    size, table = xray.block_size, xray.tables.get(name, ())
    index, offset = position // size, position % size
    what = f"Invalid access: token {position} of {name}"
    if position < 0:
        return None, f"{what} has a negative position."
    if index >= len(table):
        has = f"{len(table)} block{'s' * (len(table) != 1)}, room for {len(table) * size} tokens"
        return None, f"{what} would be in entry {index} of its block table, which has {has}."
    block = table[index]
    what += f" is slot {offset} of block {block}"
    if not 0 <= block < xray.num_blocks:
        return None, f"{what}, and the pool has blocks 0 to {xray.num_blocks - 1}."
    others = [other for other in xray.owners[block] if other != name]
    if others:
        verb = "holds" if len(others) == 1 else "hold"
        return block, f"{what}, which {named(others)} {verb} too."
    length = xray.lengths.get(name, 0)
    if position >= length:
        return block, f"{what}, and only tokens 0 to {length - 1} are written."
    return block, f"{what}."


def story_of(xray: XRay) -> str:
    """The pool in a line: use, slots without a token, shared and cached blocks, what is wrong."""
    owners, fills = xray.owners, xray.fills
    holders = [name for name, table in xray.tables.items() if table]
    told = [xray.note] if xray.note else []
    requests = f"{len(holders)} request{'s' * (len(holders) != 1)}"
    verb = "holds" if len(holders) == 1 else "hold"
    told.append(f"{requests} {verb} {len(owners)} of {xray.num_blocks} blocks.")
    slots = len(owners) * xray.block_size
    if slots:
        empty = slots - sum(fills.values())
        told.append(f"{empty} of their {slots} slots are empty ({100 * empty / slots:.0f}%).")
    shared = sorted(block for block, names in owners.items() if len(names) > 1)
    if shared:
        verb = "is" if len(shared) == 1 else "are"
        told.append(f"{blocks(shared)} {verb} shared.")
    free = sorted({*xray.cached} - {*owners})
    if free:
        told.append(f"{len(free)} free block{'s' * (len(free) != 1)} can still be found (cached).")
    if xray.bad:
        told.append(judged(xray)[1])
    return " ".join(told)


def blocks(numbers: Sequence[int]) -> str:
    return f"Block{'s' * (len(numbers) != 1)} {named([str(n) for n in numbers])}"


def labels_of(names: Sequence[str]) -> dict[str, str]:
    """Request → the short name that fits a block: its own, or its number among all."""
    return {name: name if len(name) <= 3 else str(i + 1) for i, name in enumerate(names)}
