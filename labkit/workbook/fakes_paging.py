"""Stand-ins for notebook 04: pools in a known state, and a cache whose values name their slots."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

LINE = "free blocks, next first"


def pool_in(
    part,
    free: Sequence[int],
    holders: Mapping[int, int],
    contents: Mapping[int, str] | None = None,
    block_size: int = 4,
):
    """A pool as it may be after hours of work, made without calling any of its methods.

    `free` is the line of free blocks, the next to be given out first; `holders` says how many
    hold each of the others; `contents` names what is in the blocks that can be found again.
    """
    pool = part.BlockPool(len(free) + len(holders), block_size)
    pool.free_blocks = OrderedDict.fromkeys(free)
    pool.ref_counts = [holders.get(block, 0) for block in range(pool.num_blocks)]
    for block, name in (contents or {}).items():
        pool.hash_of[block] = name.encode()
        pool.block_of[name.encode()] = block
    return pool


def pool_state(tables, free, holders, contents=None) -> dict:
    """What is observed of a pool: plain data, keys as texts."""
    contents = contents or {}
    return {
        "block tables": tables,
        LINE: list(free),
        "holders of each block": {str(block): count for block, count in holders.items()},
        "block found for each content": {name: block for block, name in contents.items()},
        "content kept of each block": {str(block): name for block, name in contents.items()},
    }


def state_of(pool, tables) -> dict:
    """The same of a pool that a part has worked on."""
    counts = enumerate(pool.ref_counts)
    kept = {b: h.decode() for b, h in enumerate(pool.hash_of) if h is not None}
    state = pool_state(tables, pool.free_blocks, {b: n for b, n in counts if n}, kept)
    found = {h.decode(): block for h, block in sorted(pool.block_of.items())}
    return {**state, "block found for each content": found}


def draw_pool(expected: dict, found: dict):
    """Block tables and the line of free blocks of two such states, one below the other."""
    from labkit.workbook import drawings

    def tables(state):
        return {**state["block tables"], "free": state[LINE]}

    return drawings.block_tables(tables(expected), tables(found))


def named_slots(num_blocks: int, block_size: int, filled: Sequence[int], stale: float):
    """One layer of a cache, `[num_blocks, 2, 1, block_size, slots]`: values that name their slot.

    The value in slot s is 1 at place s and 0 elsewhere, so attention's output says how much of
    each slot it has read. The key is the same, which lets a query look for one slot. In the slots
    that are not `filled` lies what an earlier owner left: keys of 0, and values times `stale`.
    """
    import torch

    num_slots = num_blocks * block_size
    names = torch.eye(num_slots)
    keys, values = torch.zeros(num_slots, num_slots), stale * names
    keys[filled], values[filled] = names[filled], names[filled]
    if stale != stale:  # NaN times 0 is NaN: all of the row
        empty = [slot for slot in range(num_slots) if slot not in filled]
        values[empty] = stale
    kv = torch.stack([keys, values]).unflatten(1, (num_blocks, block_size))
    return kv.permute(1, 0, 2, 3).unsqueeze(2).contiguous()


def paged_batch(block_size: int, tables: Sequence[Sequence[int]], query_lens, context_lens):
    """What attention looks at of a batch; `tables` are of equal length, as on the device."""
    import torch

    return SimpleNamespace(
        block_size=block_size,
        block_tables=torch.tensor(tables),
        query_lens=list(query_lens),
        context_lens=list(context_lens),
    )


def slots_read(out) -> list[list]:
    """For each new token the slots that its output, `[T, heads, slots]`, is made of.

    "NaN" where it is no number at all.
    """
    read = []
    for row in out.sum(dim=1):  # over the heads
        numbers = not row.isnan().any()
        read.append((row > 1e-3).nonzero().flatten().tolist() if numbers else ["NaN"])
    return read
