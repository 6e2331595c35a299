"""Stand-ins for notebook 05: parts of the kernels on the NumPy twin of Triton, the kernel language,
over pools whose numbers say where they lie; and what was read, drawn.

Nothing here loads NumPy before a check runs, since a server reads the exercises too.
"""

import re
from collections.abc import Sequence
from types import SimpleNamespace

NAN = float("nan")
NO_WINDOW = 2**30
LOWEST = -1e30
OTHERS = "table entries read that are not the sequence's"


def numbers(values):
    """Plain data, rounded to three digits, with words for what JSON can't carry."""
    import numpy as np

    array = np.asarray(values)
    if array.ndim:
        return [numbers(row) for row in array]
    number = float(array)
    if number != number:
        return "NaN"
    if number < -1e29:
        return "-inf" if number < -1e38 else "LOWEST"
    return "inf" if number > 1e38 else round(number, 3) + 0.0


def on_twin(part):
    """The part's module on the twin, and the products of unlike dtypes that it makes.

    Triton compiles none of these; the twin by itself would.
    """
    import numpy as np

    from labkit.kernels.gpu import twin

    unlike, module = [], twin.in_numpy(part)

    def dot(left, right, acc=None, **options):
        pair = [str(np.asarray(side).dtype) for side in (left, right)]
        if pair[0] != pair[1]:
            unlike.append(" and ".join(pair))
        return twin.dot(left, right, acc, **options)

    module.tl = SimpleNamespace(**{**vars(twin), "dot": dot})
    return module, unlike


def quiet():
    """NumPy says nothing of divisions by zero: what comes of them is looked at."""
    import numpy as np

    return np.errstate(all="ignore")


def tensors(*values, dtype="float32"):
    """Tensors of the twin."""
    import numpy as np

    from labkit.kernels.gpu import twin

    return [twin.tensor(np.array(value, dtype)) for value in values]


class HugePool:
    """A layer with more numbers than 32 bits can count, which takes no memory.

    Each number in it is that of its block.
    """

    def __init__(self, shape: Sequence[int]):
        import math

        self.shape = shape
        self.size, self.per_block = math.prod(shape), math.prod(shape[1:])

    def __getitem__(self, offsets):
        return (offsets // self.per_block).astype("float32")


def launch(kernel, grid, kv, tables):
    """Runs `kernel(kv, table)`: its trace, or where it left an array."""
    from labkit.kernels.gpu import twin

    if isinstance(kv, HugePool):
        kv = twin.Pointer("kv", kv)
    try:
        return twin.launch(kernel, grid, kv, tables, names=("kv", "block table"))
    except twin.OutOfBounds as error:
        return f"program {place(str(error))}"


def place(message: str) -> str:
    """What an OutOfBounds says, without its numbers: who touched what, and on which side."""
    pattern = r"program \((\d+).*?\) (\w+) (.+) at (-?\d+)"
    who, does, what, least = re.match(pattern, message).groups()
    return f"{who} {does} {what} {'before its beginning' if int(least) < 0 else 'past its end'}"


def reads_of(trace, shape) -> dict:
    """Which slots of which block each program has read, and the bytes of all reads.

    `shape` is that of the layer. A cell says "0-3", or with several kv heads "h1 0-3", or keys and
    values apart: "K0-3 V0-1".
    """
    import numpy as np

    found = {}
    for access in trace.of("kv"):
        mine = found.setdefault(str(access.program[0]), {})
        for line in np.unique(access.offsets // shape[4]).tolist():
            block, kind, head, slot = map(int, np.unravel_index(line, shape[:4]))
            heads = mine.setdefault(str(block), {})
            heads.setdefault(head, ([], []))[kind].append(slot)
    cells = {
        program: {block: cell(heads, shape[2] > 1) for block, heads in sorted(blocks.items())}
        for program, blocks in found.items()
    }
    return {"reads": cells, "bytes read": trace.bytes_moved("kv")}


def cell(heads: dict, several: bool) -> str:
    said = []
    for head, (keys, values) in sorted(heads.items()):
        keys, values = span(keys), span(values)
        what = keys if keys == values else " ".join(
            name + slots for name, slots in (("K", keys), ("V", values)) if slots
        )
        said.append(f"h{head} {what}" if several else what)
    return " ".join(said)


def span(slots: list[int]) -> str:
    slots = sorted({*slots})
    if len(slots) > 1 and slots == [*range(slots[0], slots[-1] + 1)]:
        return f"{slots[0]}-{slots[-1]}"
    return ",".join(map(str, slots))


def read_tile(part, kv, tables, places, there, *, row=0, kv_head=0, dim=None) -> dict:
    """`load_tile` of the part on a layer: the tile, and what was read for it."""
    import numpy as np

    module, _ = on_twin(part)
    shape, tile = kv.shape, []
    tables = np.array(tables, np.int32)

    def kernel(kv, table):
        at, wanted = tensors(places, dtype="int32")[0], tensors(there, dtype="bool")[0]
        tile.extend(module.load_tile(
            kv, table + row * tables.shape[1], at, wanted, kv_head,
            shape[2], shape[3], shape[4], dim or shape[4],
        ))  # fmt: skip

    trace = launch(kernel, (1,), kv, tables)
    if isinstance(trace, str):
        return {"out of bounds": trace}
    own = {at // shape[3] for at, is_there in zip(places, there, strict=True) if is_there}
    read = np.concatenate([a.offsets.ravel() for a in trace.of("block table")] or [[]])
    others = sorted({int(entry) - row * tables.shape[1] for entry in read} - own)
    said = {"keys": numbers(tile[0]), "values": numbers(tile[1]), OTHERS: others}
    return said if isinstance(kv, HugePool) else said | reads_of(trace, shape)


def named_pool(num_blocks, kv_heads=1, block_size=4, head_dim=1, written=None):
    """A layer whose numbers name their place: block 3, head 1, slot 2 has the key 312 and the value
    312.5. Of `written` {block: slots} the slots after these hold NaN."""
    import numpy as np

    shape = (num_blocks, 2, kv_heads, block_size, head_dim)
    block, kind, head, slot, _ = np.indices(shape)
    kv = (100 * block + 10 * head + slot + 0.5 * kind).astype(np.float32)
    for number, slots in (written or {}).items():
        kv[number, :, :, slots:] = np.nan
    return kv


def sequence_pool(table, length, num_blocks, block_size=4, head_dim=16, stale=NAN):
    """A layer with one sequence: the key and the value of the token at place p are 1 at p and 0
    elsewhere. So a sum of values tells the weight of each token. All else is `stale`."""
    import numpy as np

    kv = np.full((num_blocks, 2, 1, block_size, head_dim), stale, np.float32)
    for at in range(length):
        kv[table[at // block_size], :, 0, at % block_size] = np.eye(head_dim)[at]
    return kv


def walk(
    part, table, seen, parts, *, tile=4, block_size=4, num_blocks=6, window=NO_WINDOW, query=None,
    scale=1.0,
) -> dict:  # fmt: skip
    """`walk` of the part: program p takes the tiles `parts[p]` of one sequence, (begin, end).

    `query` {place: strength} looks for tokens, by default for none, so that all weigh 1.
    """
    import numpy as np

    module, unlike = on_twin(part)
    kv = sequence_pool(table, max(seen) + 1, num_blocks, block_size)
    wanted = np.zeros((len(seen), 16), np.float32)
    for at, strength in (query or {}).items():
        wanted[:, at] = strength
    found = {"largest": [], "total": [], "weight of each token": []}

    def kernel(kv, table):
        begin, end = parts[int(module.tl.program_id(0))]
        (places,), (rows,) = tensors(seen, dtype="int32"), tensors(wanted)
        most, total, acc = module.walk(
            rows, kv, table, places, begin, end, 0, scale, window, 1, block_size, tile, 16, 16,
            len(seen),
        )  # fmt: skip
        for name, value in zip(found, (most, total, acc[:, : max(seen) + 1]), strict=True):
            found[name] += numbers(value)

    trace = launch(kernel, (len(parts),), kv, np.array(table, np.int32))
    if isinstance(trace, str):
        return {"out of bounds": trace}
    return found | reads_of(trace, kv.shape) | {"unlike dtypes": unlike}


def draw_reads(expected: dict, found: dict):
    """Which program reads which block: programs down, blocks of the pool across."""
    from labkit.workbook import grids

    moved = found.get("bytes read", "?")
    name = f"slots read of each block ({moved} bytes read, {expected['bytes read']} needed)"
    wanted, seen = grid(expected), grid(found)
    last = max([b for g in (wanted, seen or {}) for row in g.values() for b in row], default=0)
    said = found.get("out of bounds", "nothing that can be drawn")
    return grids.draw(
        name, ("program", "block"), [str(b) for b in range(last + 1)], wanted, seen, said
    )


def grid(answer: dict) -> dict | None:
    if "reads" not in answer:
        return None
    return {
        program: {int(block): (text, "some") for block, text in blocks.items()}
        for program, blocks in answer["reads"].items()
    }


def draw_tile(expected: dict, found: dict):
    """The reads, or where these are right what the tile holds."""
    from labkit.workbook import drawings

    if found.get("reads") != expected["reads"]:
        return draw_reads(expected, found)
    for what in ("keys", "values"):
        if found[what] != expected[what]:
            name = f"{what} of the tile, a row a token"
            return drawings.rows(expected[what], found[what], name=name)
    return drawings.rows(expected[OTHERS], found[OTHERS], name=OTHERS)


def draw_weights(expected: dict, found: dict):
    """The reads, or where these are right the weight that each row gives to each token."""
    from labkit.workbook import drawings

    if found.get("reads") != expected["reads"]:
        return draw_reads(expected, found)
    key = "weight of each token"
    if found[key] != expected[key]:
        name = f"{key} (column) for each query (row)"
        return drawings.rows(expected[key], found[key], name=name)
    pair = [[list(each) for each in zip(answer["largest"], answer["total"], strict=True)]
            for answer in (expected, found)]  # fmt: skip
    return drawings.rows(*pair, name="largest score and total of the weights, a row a query")
