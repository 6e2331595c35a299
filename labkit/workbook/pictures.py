"""The learner's own figures, kept for the report as they were shown.

A figure that is shown between `predict("01.work", …)` and `compare("01.work", …)` shows what that
experiment found. `compare` keeps the last of them under `my/pictures/`, few and small, and never
raises. Nothing is kept before `begin(keep=True)`, which is a notebook's first cell.
"""

import os
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from labkit.paths import my_dir

MOST = 2  # pictures of one experiment: the last ones shown
MOST_BYTES = 300_000  # of one; a larger one is drawn again less sharply, or left out
MOST_FILES = 120  # in the folder, whatever keys a notebook makes up
STORY = 600  # characters of the line that tells what is to be seen

GOOD_KEY = re.compile(r"\d\d\.\w{1,40}", re.ASCII)  # one that may be part of a file's name

_keeps = False
_shown: list["Shown"] = []


@dataclass(frozen=True)
class Shown:
    """A figure that a cell has just shown."""

    png: bytes
    story: str


def begin(keep: bool) -> None:
    """Called by `start(...)`. Solutions keep nothing."""
    global _keeps
    _keeps = keep
    _shown.clear()


def forget() -> None:
    """Called by `predict(...)`: what was shown before is no part of this experiment."""
    _shown.clear()


def shown(png: bytes, story: str, smaller: Callable[[], bytes]) -> None:
    """Called by a figure when a notebook shows it."""
    if not _keeps:
        return
    if len(png) > MOST_BYTES:
        png = smaller()
    if len(png) <= MOST_BYTES:
        _shown.append(Shown(png, str(story)[:STORY]))
        del _shown[:-MOST]


def folder() -> Path:
    return my_dir() / "pictures"


def keep(key: str) -> list[dict[str, str]]:
    """Writes what has been shown as the pictures of experiment `key`, in place of older ones.

    Returns their file names and stories. Empty where there is nothing to keep, and where the
    folder is full; OSError where it can't be written.
    """
    fresh = list(_shown)
    _shown.clear()
    if not fresh or not GOOD_KEY.fullmatch(key):
        return []
    folder().mkdir(parents=True, exist_ok=True)
    names = [f"{key}-{number}.png" for number in range(1, MOST + 1)]
    others = sum(path.name not in names for path in folder().glob("*.png"))
    if others + len(fresh) > MOST_FILES:
        return []
    for name, picture in zip(names, fresh, strict=False):
        write_bytes(folder() / name, picture.png)
    for name in names[len(fresh) :]:
        (folder() / name).unlink(missing_ok=True)
    return [
        {"file": name, "story": picture.story}
        for name, picture in zip(names, fresh, strict=False)
    ]


def write_bytes(path: Path, content: bytes) -> None:
    """As `paths.write_atomic`, for bytes: a reader sees the old picture or the new one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
