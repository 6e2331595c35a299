"""Every sentence that the workbook says to a learner, in English and Korean, side by side.

The files are `messages/*.toml`; an entry is `["key"]` with `en` and `ko`. Code, ids and plot
labels are English in both.
"""

import json
import os
import tomllib
from functools import cache
from pathlib import Path

from labkit.paths import my_dir, write_atomic

LANGUAGES = ("en", "ko")
_notebook_language = "en"  # of the notebook that this kernel runs; see `set_notebook_language`


@cache
def _entries() -> dict[str, dict[str, str]]:
    entries: dict[str, dict[str, str]] = {}
    for file in sorted((Path(__file__).parent / "messages").glob("*.toml")):
        for key, sentence in tomllib.loads(file.read_text(encoding="utf-8")).items():
            if key in entries:
                raise ValueError(f"{file.name}: the key {key!r} is already in another file")
            entries[key] = sentence
    return entries


def keys() -> list[str]:
    """All keys, for the tests that hold the two languages side by side."""
    return list(_entries())


def has(key: str) -> bool:
    """Whether the catalogue holds this key."""
    return key in _entries()


def text(key: str, lang: str | None = None, /, **values) -> str:
    """The sentence `key` in `lang` (else the current language), its {names} filled in."""
    if not has(key):
        raise KeyError(f"no sentence {key!r} in labkit/workbook/messages")
    return _entries()[key][lang or current_language()].strip().format(**values)


def current_language() -> str:
    """`LABKIT_LANG`, else the learner's own choice, else the language of the notebook."""
    for choice in (os.environ.get("LABKIT_LANG"), chosen_language()):
        if choice in LANGUAGES:
            return choice
    return _notebook_language


def chosen_language() -> str | None:
    """What the learner chose with `language(...)` in notebook 00; None before."""
    try:
        settings = json.loads((my_dir() / "settings.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return settings.get("language") if isinstance(settings, dict) else None


def choose_language(lang: str) -> None:
    """Keeps the learner's choice in `my/settings.json`. ValueError for another language."""
    if lang not in LANGUAGES:
        raise ValueError(f"language {lang!r} is not one of {', '.join(LANGUAGES)}")
    write_atomic(my_dir() / "settings.json", json.dumps({"language": lang}) + "\n")


def set_notebook_language(lang: str) -> None:
    """Called by `start(...)` in a notebook's first cell."""
    global _notebook_language
    _notebook_language = lang
