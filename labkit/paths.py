"""Where things lie on disk: the checkout, the learner's folder, the user cache.

Standard library only, since the set-up runs before anything is installed.
Every path can be moved by an environment variable, which is how the tests keep out of
the learner's own files.
"""

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MOST_BYTES = 5_000_000  # of a file that the workbook keeps
LOCK_S = 5.0  # a lock older than this was left behind by a process that has been ended


def repo_root() -> Path:
    """The checkout that labkit was installed from: it holds `notebooks/` and `my/`."""
    return Path(__file__).resolve().parent.parent


def my_dir() -> Path:
    """The learner's own folder (`LABKIT_MY`, else `my/` in the checkout), ignored by git."""
    return Path(os.environ.get("LABKIT_MY") or repo_root() / "my")


def cache_dir() -> Path:
    """Models and other large files, kept per user (`LABKIT_CACHE` moves it)."""
    if os.environ.get("LABKIT_CACHE"):
        return Path(os.environ["LABKIT_CACHE"])
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "labkit"


def read_at_most(path: Path, most: int = MOST_BYTES) -> bytes:
    """What a file holds. Raises OSError for a longer one, and for what is no file: reading a pipe
    or a device need not end."""
    if path.exists() and not path.is_file():
        raise OSError(f"{path.name} is no file")
    with path.open("rb") as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise OSError(f"{path.name} is longer than the {most:,} bytes that are read at most")
    return found


def write_atomic(path: Path, text: str) -> None:
    """Write UTF-8 text so that a reader, or a kill -9, sees the old file or the new one.

    Line ends are written as they stand in `text`, on every platform.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Holds a lock beside `path` while it is read and written again, so that of two notebooks
    neither loses what the other has just kept. Raises OSError where no lock can be made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except (FileExistsError, PermissionError) as error:  # the latter on Windows, as it goes
            try:
                age = time.time() - lock.stat().st_mtime
            except FileNotFoundError:
                if isinstance(error, PermissionError) and os.name != "nt":
                    raise
                continue
            if not 0 <= age <= LOCK_S:
                lock.unlink(missing_ok=True)
            time.sleep(0.01)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
