"""Reads the hand-written source of a notebook: `notebooks/source/NN_name.py`, jupytext percent.

    # %% [markdown] lang="en"                 prose in English, and right after it
    # %% [markdown] lang="ko" of="3fa9c1d2"   its Korean, with the hash of the English it translates
    # %% [markdown]                           prose that is the same in both
    # %%                                      code, the same in both; tags=["nbval-ignore-output"]
    # %% header minutes=40                    facts about the notebook; minutes of reading, no more
    # %% show="labkit.engine.naive:NaiveEngine"       code of labkit to read
    # %% exercise="01.1"                      heading, exercise cell, check and hints

The last three are empty in the source; the build fills them.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.paths import write_atomic

LANGUAGES = ("en", "ko")
ALLOWED = {
    "prose": {"lang", "of"},
    "code": {"tags"},
    "header": {"title", "minutes"},
    "show": {"show"},
    "exercise": {"exercise"},
}
IGNORED = {"lines_to_next_cell"}  # jupytext's notes about blank lines
KOREAN_MARK = re.compile(r'^(# %% \[markdown\] lang="ko")(?: of="[^"]*")?[ ]*$', re.MULTILINE)


class SourceError(ValueError):
    """A source that can't be built: the message names notebook, cell and remedy."""


@dataclass(frozen=True)
class Cell:
    """One cell of the source. A translated pair of prose cells is one `Cell`."""

    kind: str  # a key of ALLOWED
    text: str  # English prose, code, "module:symbol" or an exercise id
    where: str  # names the cell in messages
    translated: bool = False  # whether the prose is marked English and needs Korean
    korean: str | None = None
    of: str | None = None  # hash of the English that `korean` translates
    tags: tuple[str, ...] = ()
    minutes: int = 0

    def prose(self, language: str) -> str:
        """The prose in `language`; English where the translation is missing."""
        return self.korean if language == "ko" and self.korean is not None else self.text

    @property
    def translation_problem(self) -> str | None:
        """What is wrong with the Korean of this cell, or None."""
        if not self.translated:
            return None
        mark = f'# %% [markdown] lang="ko" of="{text_hash(self.text)}"'
        if self.korean is None:
            return f"{self.where}: its Korean is missing; add {mark}"
        if self.of != text_hash(self.text):
            return (
                f"{self.where}: the English is newer than its Korean; bring that up to date, then "
                f"run python3 -m labkit notebooks stamp {self.where[:2]}"
            )
        return None


@dataclass(frozen=True)
class Source:
    """A notebook as it was written."""

    name: str  # "01_streaming_without_cache"
    cells: tuple[Cell, ...]

    @property
    def number(self) -> str:
        """The two digits that it begins with."""
        return self.name[:2]


def text_hash(text: str) -> str:
    """Eight hex digits that change with the text."""
    return hashlib.sha256(text.strip().encode("utf-8")).hexdigest()[:8]


def read(path: Path) -> Source:
    """Parses one source file. SourceError for a cell that the build would not know."""
    if not re.match(r"\d\d_\w+$", path.stem):
        raise SourceError(f"{path.name}: call it NN_name.py, two digits first")
    import jupytext  # takes a second, which a notebook that only wants `exercise_cell` is spared

    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    cells: list[Cell] = []
    for number, raw in enumerate(notebook.cells, 1):
        first_line = raw.source.strip().split("\n")[0][:50]
        where = f"{path.stem}, cell {number} ({first_line or dict(raw.metadata)})"
        options = {key: raw.metadata[key] for key in raw.metadata if key not in IGNORED}
        if options.get("lang") == "ko":
            _attach_korean(cells, raw.source, options, where)
        else:
            cells.append(_cell(raw, options, where))
    return Source(path.stem, tuple(cells))


def stamp(path: Path) -> int:
    """Writes the current hash of the English beside each Korean cell; returns how many changed.

    To be called by whoever has looked at the translations.
    """
    before = path.read_bytes().decode("utf-8")
    hashes = [text_hash(c.text) for c in read(path).cells if c.korean is not None]
    marks = KOREAN_MARK.findall(before)
    if len(marks) != len(hashes):
        raise SourceError(
            f"{path.name}: {len(hashes)} Korean cells, {len(marks)} of them begin as "
            '# %% [markdown] lang="ko" of="..."; write them so'
        )
    stale = sum(c.of != text_hash(c.text) for c in read(path).cells if c.korean is not None)
    following = iter(hashes)
    after = KOREAN_MARK.sub(lambda mark: f'{mark[1]} of="{next(following)}"', before)
    if after != before:
        write_atomic(path, after)
    return stale


def _cell(raw, options: dict, where: str) -> Cell:
    if raw.cell_type == "markdown":
        kind = "prose"
    else:
        generated = {"title": "header", "show": "show", "exercise": "exercise"}
        kind = next((generated[key] for key in generated if key in options), "code")
    unknown = set(options) - ALLOWED.get(kind, set())
    if raw.cell_type not in ("markdown", "code") or unknown:
        what = ", ".join(sorted(unknown)) or raw.cell_type
        raise SourceError(f"{where}: {what} is not known here; see labkit/workbook/source.py")
    if kind in ("header", "show", "exercise") and raw.source.strip():
        raise SourceError(f"{where}: the build fills this cell; leave it empty")
    if kind == "header" and options["title"] != "header":
        raise SourceError(f"{where}: {options['title']!r} is not known here; header is")
    if options.get("lang", "en") != "en" or "of" in options:
        raise SourceError(f'{where}: lang is "en" or "ko", and of= stands at the Korean cell')
    text = options[kind] if kind in ("show", "exercise") else raw.source
    return Cell(
        kind,
        text,
        where,
        translated="lang" in options,
        tags=tuple(options.get("tags", ())),
        minutes=int(options.get("minutes", 0)),
    )


def _attach_korean(cells: list[Cell], text: str, options: dict, where: str) -> None:
    if not cells or not cells[-1].translated or cells[-1].korean is not None:
        raise SourceError(f'{where}: a lang="ko" cell stands right after its lang="en" cell')
    if set(options) - ALLOWED["prose"]:
        raise SourceError(f"{where}: a Korean cell has lang= and of=, nothing else")
    cells[-1] = replace(cells[-1], korean=text, of=options.get("of"))
