"""What a part did beside what was expected, drawn: for the `draw` of a `registry.Case`.

Here values become grids of cells; `grids` draws two of them and marks where they differ. What a
learner's part has found may be anything: it is cut, or told in words, never an error. What was
`expected` must fit; ValueError says what doesn't. Nothing here loads matplotlib before it draws,
since a server reads the exercises too.
"""

from labkit.workbook.worker import plain

MOST = 200  # rows, columns that are looked at
LONGEST = 8  # characters in a cell


def rows(expected, found, name: str = "rows"):
    """A `Picture` of two lists of rows of numbers: padding, positions, masks.

    A list of numbers is one row. `name` is what they are, and stands in the title.
    """
    return _picture(name, ("row", "column"), _grid_of_rows, expected, found)


def block_tables(expected, found, block_size: int | None = None):
    """A `Picture` of two `{request: [block, ...]}`; with `block_size` it says whose tokens lie
    in which column."""
    return _picture("block tables", ("request", "entry"), _grid_of_tables, expected, found,
                    block_size)  # fmt: skip


def lists(expected, found, name: str, row: str):
    """A `Picture` of two `{row: [value, ...]}`: requests of replicas, what callers saw."""
    return _picture(name, (row, "entry"), _grid_of_tables, expected, found)


def schedule(expected, found, name: str = "schedule", axes=("request", "step")):
    """A `Picture` of two lists of steps, each `{request: number of tokens}` or
    `{"tokens": {request: number}, "preempted": [request, ...]}`."""
    return _picture(name, axes, _grid_of_steps, expected, found)


def _picture(name, axes, grid_of, expected, found, block_size=None):
    from labkit.workbook import grids

    wanted = grid_of(plain(expected))
    if wanted is None:
        raise ValueError(f"{_short(expected, 80)} can't be drawn as {name}")
    found = plain(found)
    columns = [str(number) for number in range(MOST)]
    if block_size:
        starts = range(0, MOST * block_size, block_size)
        columns = [f"{start}–{start + block_size - 1}" for start in starts]
    return grids.draw(name, axes, columns, wanted, grid_of(found), _short(found, 60))


def _grid_of_rows(value):
    if not isinstance(value, list):
        return None
    lists = value if any(isinstance(row, list) for row in value) else [value]
    grid = {}
    for number, row in enumerate(lists[:MOST]):
        items = row if isinstance(row, list) else [row]
        grid[str(number)] = {column: _cell(item) for column, item in enumerate(items[:MOST])}
    return grid


def _grid_of_tables(value):
    if not isinstance(value, dict):
        return None
    grid = {}
    for name, table in list(value.items())[:MOST]:
        blocks = table if isinstance(table, list) else [table]
        grid[str(name)] = {  # block 0 is a block as any other
            entry: (_cell(block)[0], "none" if block is None else "some")
            for entry, block in enumerate(blocks[:MOST])
        }
    return grid


def _grid_of_steps(value):
    if not isinstance(value, list):
        return None
    grid = {}
    for number, step in enumerate(value[:MOST]):
        step = step if isinstance(step, dict) else {}
        preempted = []
        if isinstance(step.get("tokens"), dict):
            preempted = step.get("preempted")
            preempted, step = preempted if isinstance(preempted, list) else [], step["tokens"]
        for name, tokens in list(step.items())[:MOST]:
            grid.setdefault(str(name), {})[number] = _cell(tokens)
        for name in map(str, preempted[:MOST]):
            said = grid.setdefault(name, {}).get(number, ("",))[0]
            grid[name][number] = (f"{said} P".strip(), "preempted")
    return grid


def _cell(value) -> tuple[str, str]:
    """The text of a cell, and how it is filled: "none" where nothing is (0, False, None)."""
    if isinstance(value, bool):
        return ("T", "some") if value else ("F", "none")
    if isinstance(value, float):
        return f"{value:.4g}", "some" if value else "none"
    return _short(value, LONGEST), "some" if value not in (0, None) else "none"


def _short(value, longest: int) -> str:
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text[:1000].split())
    return text if len(text) <= longest else text[: longest - 1] + "…"
