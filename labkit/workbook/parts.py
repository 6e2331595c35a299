"""A learner's part: found in a cell, held against the hole it must fit, saved under `my/`.

`my/parts/01.2.py` holds the text of a part that passed its check, and nothing else; while the
file is there, the exercise counts as passed. `my/progress.json` counts attempts and hints.
"""

import ast
import json
import time
from dataclasses import dataclass
from pathlib import Path

from labkit.paths import alone_with, my_dir, read_at_most, write_atomic
from labkit.workbook import cut
from labkit.workbook.registry import Exercise

OUTCOMES = ("passed", "wrong", "crashed", "not attempted")


class PartError(ValueError):
    """A text that cannot be spliced: `key` names the sentence of the catalogue that says why."""

    def __init__(self, key: str, **values):
        super().__init__(f"{key}: {values}")
        self.key, self.values = key, values


@dataclass(frozen=True)
class Hole:
    """The place of an exercise in labkit: module text and the reference that is cut out."""

    exercise: Exercise
    source: str

    @classmethod
    def of(cls, exercise: Exercise) -> "Hole":
        return cls(exercise, module_source(exercise.module))

    @property
    def reference(self) -> str:
        return cut.extract(self.source, self.exercise.symbol)

    @property
    def name(self) -> str:
        return self.exercise.symbol.rsplit(".", 1)[-1]

    @property
    def blank(self) -> str:
        return cut.blank(self.source, self.exercise.symbol, self.exercise.id)


def module_source(module: str) -> str:
    """The text of a labkit module, read from disk without importing it."""
    from labkit.paths import repo_root

    path = repo_root().joinpath(*module.split(".")).with_suffix(".py")
    return path.read_bytes().decode("utf-8")


def part_from_cell(hole: Hole, cell: str) -> str:
    """The hole's `def` out of an exercise cell, with decorators of its own but `@exercise`.

    Raises PartError for a syntax error, a missing `def`, or a signature that is not the one
    labkit calls.
    """
    try:
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        names = [node.name for node in ast.parse(cell).body if isinstance(node, functions)]
    except SyntaxError as error:
        raise PartError("check.syntax", line=error.lineno or 1, reason=error.msg) from None
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes, nested too deep
        raise PartError("check.unreadable", reason=error) from None
    if hole.name not in names:
        raise PartError("check.no_def", name=hole.name)
    try:
        part = cut.plain_def(cut.extract(cell, hole.name, decorators=True), hole.name)
    except (LookupError, ValueError) as error:
        raise PartError("check.unreadable", reason=error) from None
    if signature(part) != signature(hole.reference):
        raise PartError(
            "check.signature", expected=signature(hole.reference), found=signature(part)
        )
    return part


def signature(text: str) -> str:
    """`def name(arguments)` without annotations: what a caller depends on."""
    node = ast.parse(text).body[0]
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    for star in (arguments.vararg, arguments.kwarg):
        if star:
            star.annotation = None
    keyword = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    return f"{keyword} {node.name}({ast.unparse(arguments)})"


# ---- what is kept under my/


def part_path(exercise_id: str) -> Path:
    return my_dir() / "parts" / f"{exercise_id}.py"


def save_part(exercise_id: str, text: str) -> Path:
    """Keeps a part that passed, and says where."""
    write_atomic(part_path(exercise_id), text.rstrip("\n") + "\n")
    return part_path(exercise_id)


def saved_part(hole: Hole) -> str | None:
    """The passed part of this exercise, or None.

    Raises PartError when there is one that no longer fits: the signature in labkit changed
    since, or the file was damaged.
    """
    try:
        text = read_at_most(part_path(hole.exercise.id)).decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise PartError("check.unreadable", reason=error) from None
    return part_from_cell(hole, text)


def is_saved(exercise_id: str) -> bool:
    """Whether a part is kept that Python can read; a folder or a picture of that name is none."""
    try:
        ast.parse(read_at_most(part_path(exercise_id)).decode("utf-8"))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def put_aside(exercise_id: str) -> Path | None:
    """Moves a saved part to `my/backups/`, and says where; None when there is none."""
    path = part_path(exercise_id)
    if not path.exists():
        return None
    backups = my_dir() / "backups"
    backups.mkdir(parents=True, exist_ok=True)
    stem = f"{exercise_id}-{time.strftime('%Y%m%d-%H%M%S')}"
    backup, number = backups / f"{stem}.py", 1
    while backup.exists():
        backup, number = backups / f"{stem}-{number}.py", number + 1
    return path.rename(backup)


def notes() -> dict[str, dict]:
    """Attempts, last outcome and hints seen, by exercise id; empty when unreadable."""
    try:
        kept = json.loads(read_at_most(my_dir() / "progress.json").decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(kept, dict):
        return {}
    return {key: good_note(value) for key, value in kept.items() if isinstance(value, dict)}


def good_note(kept: dict) -> dict:
    """What can be used of one exercise's notes, whoever has edited the file."""
    counts = {k: kept[k] for k in ("attempts", "hints") if type(kept.get(k)) is int and kept[k] > 0}
    outcome = kept.get("outcome")
    return counts | ({"outcome": outcome} if outcome in OUTCOMES else {})


def note(exercise_id: str, **values) -> None:
    """Merges `values` into the notes of one exercise."""
    path = my_dir() / "progress.json"
    with alone_with(path):
        kept = notes()
        kept[exercise_id] = {**kept.get(exercise_id, {}), **values}
        write_atomic(path, json.dumps(kept, indent=1) + "\n")
