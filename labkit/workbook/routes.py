"""The three ways through the workbook, in minutes, for the notebooks that there are.

The minutes of reading and running stand in a notebook's source (`# %% header minutes=15`), those
of an exercise in its registry entry.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from labkit.paths import repo_root
from labkit.workbook.catalogue import text
from labkit.workbook.registry import Exercise, exercises
from labkit.workbook.report import Report, Table

HEADER = re.compile(r"^# %% header .*\bminutes=(\d+)", re.MULTILINE)


def routes() -> Report:
    """Minutes of each notebook on the routes *tour*, *core* and *all*, and their sums."""
    rows = [
        [source.stem, *minutes(source, exercises().values())]
        for source in sorted((repo_root() / "notebooks" / "source").glob("*.py"))
    ]
    sums = [sum(column) for column in list(zip(*rows, strict=True))[1:]]
    head = [text(f"routes.{column}") for column in ("notebook", "tour", "core", "all")]
    table = Table(head, [*rows, [text("routes.together"), *sums]])
    table.rows = [[name, *map(str, numbers)] for name, *numbers in table.rows]
    return Report("note", text("routes.title"), table=table)


def minutes(source: Path, among: Iterable[Exercise]) -> tuple[int, int, int]:
    """Minutes that a notebook takes on the tour, on the core route, and with all exercises.

    ValueError when the source does not say how long it takes to read.
    """
    header = HEADER.search(source.read_text(encoding="utf-8"))
    if header is None:
        raise ValueError(f"{source.name} says no minutes; give it a cell # %% header minutes=15")
    tour = int(header[1])
    own = [exercise for exercise in among if exercise.notebook == source.stem[:2]]
    return tour, core_minutes(tour, own), tour + sum(exercise.minutes for exercise in own)


def core_minutes(tour: int, own: Sequence[Exercise]) -> int:
    """Minutes on the core route; 0 for a notebook that lies beside it, with no core exercise."""
    core = [exercise.minutes for exercise in own if exercise.core]
    return 0 if own and not core else tour + sum(core)
