"""Stand-ins for notebook 05: parts of the kernels on the NumPy twin of Triton, the kernel language,
over pools whose numbers say where they lie; and what was read, drawn.

Nothing here loads NumPy before a check runs, since a server reads the exercises too.
"""

import re
from collections.abc import Sequence
from types import ModuleType

NAN = float("nan")
NO_WINDOW = 2**30
LOWEST = -1e30
WEIGHTS = "weight of each token"
OTHERS = "table entries read for tokens that aren't there"


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
    from labkit.kernels.gpu import twin
    from labkit.workbook.my_kernels import refuse_what_triton_does

    refuse_what_triton_does(part)
    unlike, module = [], twin.in_numpy(part)

    def dot(left, right, acc=None, *arguments, **options):
        pair = dtypes([left, right])
        if pair[0] != pair[1]:
            unlike.append(" and ".join(pair))
        return twin.dot(left, right, acc, *arguments, **options)

    module.tl = ModuleType("tl")
    vars(module.tl).update(vars(twin), dot=dot)
    return module, unlike


def dtypes(values) -> list[str]:
    """Of each tensor, for a wrong one shows in no number. NumPy's float64 is Triton's float32."""
    import numpy as np

    return [str(np.asarray(v).dtype).replace("float64", "float32") for v in values]


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
    said = {"keys": numbers(tile[0]), "values": numbers(tile[1]), "dtypes": dtypes(tile)}
    said[OTHERS] = others
    return said if isinstance(kv, HugePool) else said | reads_of(trace, shape)


def named_pool(
    num_blocks, kv_heads=1, block_size=4, head_dim=1, written=None, dtype="float32"
):  # fmt: skip
    """A layer whose numbers name their place: block 3, head 1, slot 2 has the key 312 and the value
    312.5. Of `written` {block: slots} the slots after these hold NaN."""
    import numpy as np

    shape = (num_blocks, 2, kv_heads, block_size, head_dim)
    block, kind, head, slot, _ = np.indices(shape)
    kv = (100 * block + 10 * head + slot + 0.5 * kind).astype(dtype)
    for number, slots in (written or {}).items():
        kv[number, :, :, slots:] = np.nan
    return kv


def sequence_pool(
    table, length, num_blocks, block_size=4, head_dim=16, kv_heads=1, dtype="float32", stale=NAN
):
    """A layer with one sequence, in its last kv head: the key of the token at place p is 1 at p and
    0 elsewhere, its value 1 at p from the end. So a sum of values tells the weight of each token.
    All else is `stale`."""
    import numpy as np

    kv = np.full((num_blocks, 2, kv_heads, block_size, head_dim), stale, dtype)
    for at in range(length):
        slot = kv[table[at // block_size], :, -1, at % block_size]
        slot[0], slot[1] = np.eye(head_dim)[at], np.eye(head_dim)[-1 - at]
    return kv


def walk(
    part, table, seen, parts, *, tile=4, block_size=4, num_blocks=6, window=NO_WINDOW, query=None,
    scale=1.0, head_dim=16, kv_heads=1, dtype="float32", exact=True,
) -> dict:  # fmt: skip
    """`walk` of the part: program p takes the tiles `parts[p]` of one sequence, (begin, end).

    `query` {place: strength} looks for tokens, by default for none, so that all weigh 1. Reads are
    told where they are `exact`: a window leaves open what is read before it.
    """
    import numpy as np

    module, unlike = on_twin(part)
    length = max(seen) + 1
    kv = sequence_pool(table, length, num_blocks, block_size, head_dim, kv_heads, dtype)
    wanted = np.zeros((len(seen), 16), dtype)
    for at, strength in (query or {}).items():
        wanted[:, at] = strength
    found = {"largest": [], "total": [], WEIGHTS: []}

    def kernel(kv, table):
        begin, end = parts[int(module.tl.program_id(0))]
        (places,), (rows,) = tensors(seen, dtype="int32"), tensors(wanted, dtype=dtype)
        most, total, acc = module.walk(
            rows, kv, table, places, begin, end, kv_heads - 1, scale, window, kv_heads, block_size,
            tile, head_dim, 16, len(seen),
        )  # fmt: skip
        weights = np.asarray(acc)[:, :head_dim][:, ::-1][:, :length]  # values are from the end
        for name, value in zip(("largest", "total", WEIGHTS), (most, total, weights), strict=True):
            found[name] += numbers(value)
        found["dtypes"] = dtypes((most, total, acc))

    trace = launch(kernel, (len(parts),), kv, np.array(table, np.int32))
    if isinstance(trace, str):
        return {"out of bounds": trace}
    reads = reads_of(trace, kv.shape) if exact else {}
    return found | reads | {"unlike dtypes": unlike}


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
    return drawn_rows(expected[OTHERS], found[OTHERS], OTHERS)


def drawn_rows(expected, found, name):
    """A picture of rows; none where they are alike, and the table tells what is not."""
    from labkit.workbook import drawings

    return None if expected == found else drawings.rows(expected, found, name=name)


def draw_weights(expected: dict, found: dict):
    """The reads, or where these are right the weight that each row gives to each token."""
    if "reads" in expected and found.get("reads") != expected["reads"]:
        return draw_reads(expected, found)
    if found[WEIGHTS] != expected[WEIGHTS]:
        name = f"{WEIGHTS} (column) for each query (row)"
        return drawn_rows(expected[WEIGHTS], found[WEIGHTS], name)
    pair = [[list(each) for each in zip(answer["largest"], answer["total"], strict=True)]
            for answer in (expected, found)]  # fmt: skip
    return drawn_rows(*pair, "largest score and total of the weights, a row a query")
