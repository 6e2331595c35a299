"""The learner's own copies of the notebooks, and how they follow the checkout.

A learner works in `my/NN_name.ipynb`, so that a pull never conflicts with anybody's work.
`my/.base/` holds what each copy was made from, and tells what the learner changed from what
changed upstream. Nothing is ever lost: a copy that is about to be rewritten goes to
`my/backups/` first.
"""

import json
import shutil
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labkit import paths
from labkit.paths import write_atomic
from labkit.workbook.catalogue import text


def sync(
    source_dir: Path | None = None,
    my_dir: Path | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Brings the notebooks of `source_dir` (and its `ko/`) into `my_dir`; says what it changed.

    A copy that the learner never touched is replaced. Into a touched one the changes from
    upstream are merged: see `merge`. A notebook that can't be read is put aside when it is the
    learner's, and skipped when it is upstream's.
    """
    source_dir = source_dir or paths.repo_root() / "notebooks"
    my_dir = my_dir or paths.my_dir()
    for source in sorted([*source_dir.glob("*.ipynb"), *source_dir.glob("ko/*.ipynb")]):
        name = source.relative_to(source_dir)
        upstream = source.read_text(encoding="utf-8")
        if cells_of(upstream) is None:
            say(text("copies.upstream_broken", name=name.as_posix()))
        else:
            _sync_one(upstream, name, my_dir, say)


def _sync_one(upstream: str, name: Path, my_dir: Path, say: Callable[[str], None]) -> None:
    """Order matters for a kill in between: the backup first, the copy, and the base last."""
    copy, base = my_dir / name, my_dir / ".base" / name
    old, mine = _read(base), _read(copy)
    if mine is not None and cells_of(mine) is None:
        backup = back_up(copy, my_dir)
        say(text("copies.broken", name=name.as_posix(), backup=backup))
        mine = None
    if mine is None or mine == old != upstream:
        write_atomic(copy, upstream)
        if mine is not None:
            say(text("copies.replaced", name=name.as_posix()))
    elif old != upstream != mine:
        merged = merge(cells_of(old or "") or [], cells_of(mine), upstream)
        backup = back_up(copy, my_dir)
        write_atomic(copy, merged.text)
        counts = {"exercises": merged.exercises, "kept": merged.kept}
        say(text("copies.merged", name=name.as_posix(), backup=backup, **counts))
        if merged.given_up:
            say(text("copies.given_up", count=merged.given_up, backup=backup))
    if old != upstream:
        write_atomic(base, upstream)


@dataclass
class Merged:
    """A merged notebook, and how many of the learner's cells went which way."""

    text: str = ""
    exercises: int = 0  # texts carried over into exercise cells
    kept: int = 0  # other edits, and added cells, carried over
    given_up: int = 0  # edits of cells that upstream changed too: they are in the backup only


def merge(old: list[dict], mine: list[dict], upstream: str) -> Merged:
    """The notebook `upstream` with the learner's work in `mine`, which was copied from `old`.

    An exercise cell keeps the learner's text. Any other cell keeps it where upstream left that
    cell alone; where both changed it, upstream's stands. Cells that the learner added stay
    behind the cell that they stood behind.
    """
    notebook, merged = json.loads(upstream), Merged()
    before = {key_of(cell): source_of(cell) for cell in old}
    theirs = {key_of(cell): cell for cell in notebook["cells"]}
    groups = {None: [], **{key: [cell] for key, cell in theirs.items()}}  # None: the very top
    current, met = None, set()
    for cell in mine:
        key, written = key_of(cell), source_of(cell)
        if key in theirs and key not in met:
            current = key
            fate = _fate(written, before.get(key), theirs[key])
            if fate in ("exercises", "kept"):
                theirs[key].update({name: cell[name] for name in WRITTEN if name in cell})
        else:
            dropped_upstream = key not in met and before.get(key) == written
            fate = "same" if dropped_upstream else "kept"
            if fate == "kept":
                groups[current].append(_with_own_id(cell, theirs.keys() | met))
        met.add(key)
        if fate != "same":
            setattr(merged, fate, getattr(merged, fate) + 1)
    notebook["cells"] = [cell for group in groups.values() for cell in group]
    merged.text = json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"
    return merged


WRITTEN = ("source", "outputs", "execution_count")  # what a learner's edit of a cell carries


def _fate(written: str, before: str | None, theirs: dict) -> str:
    """What becomes of the learner's text of a cell: "same" or the counter of `Merged`."""
    if written in (before, source_of(theirs)):
        return "same"
    if is_exercise(theirs):
        return "exercises"
    return "kept" if source_of(theirs) == before else "given_up"


def _with_own_id(cell: dict, taken: set[str | None]) -> dict:
    """The cell with an id that no other has; ids are missing or doubled in some editors."""
    key = cell.get("id")
    return {**cell, "id": uuid.uuid4().hex[:8] if key is None or key in taken else key}


def key_of(cell: dict) -> str | None:
    """What a cell is recognised by: its exercise, else its id."""
    exercise = cell.get("metadata", {}).get("labkit", {}).get("exercise")
    return f"ex-{exercise.replace('.', '-')}" if exercise else cell.get("id")


def is_exercise(cell: dict) -> bool:
    """Whether a learner is asked to write in this cell."""
    return (key_of(cell) or "").startswith("ex-")


def source_of(cell: dict) -> str:
    """The text of a cell; the format allows one string or a list of lines."""
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def cells_of(notebook: str) -> list[dict] | None:
    """The cells of a notebook's text, or None when it is not a whole notebook."""
    try:
        cells = json.loads(notebook)["cells"]
    except (ValueError, KeyError, TypeError):
        return None
    whole = isinstance(cells, list) and all(isinstance(cell, dict) for cell in cells)
    return cells if whole else None


def back_up(copy: Path, my_dir: Path) -> Path:
    """Copies a learner's notebook, byte for byte, into `my/backups/`; returns where it is now."""
    stem = f"{copy.relative_to(my_dir).with_suffix('').as_posix().replace('/', '-')}"
    stem = f"{stem}-{time.strftime('%Y%m%d-%H%M%S')}"
    backups = my_dir / "backups"
    backups.mkdir(parents=True, exist_ok=True)
    backup, number = backups / f"{stem}.ipynb", 1
    while backup.exists():
        backup, number = backups / f"{stem}-{number}.ipynb", number + 1
    shutil.copyfile(copy, backup)
    return backup


def _read(path: Path) -> str | None:
    """The text of a file, bytes that are not UTF-8 marked; None when there is no file."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
