"""Where things lie on disk: the checkout, the learner's folder, the user cache.

Standard library only, since the set-up runs before anything is installed.
Every path can be moved by an environment variable, which is how the tests keep out of
the learner's own files.
"""

import os
import secrets
import sys
from pathlib import Path


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
