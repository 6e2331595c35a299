"""Reads what the notebooks kept under `my/` for the report, whoever has edited it since.

Also the sample that the solutions show, which is such a folder: numbers of the executed solutions,
and predictions that nobody made.

What can't be used is left out, with a sentence that names the file and the remedy. Nothing here
raises, and every text that comes from a file is cut short and freed of control characters; the
page escapes it.
"""

import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from labkit.paths import MOST_BYTES, my_dir, read_at_most
from labkit.workbook import pictures
from labkit.workbook.catalogue import text

MOST_ENTRIES = 400  # of one file, and numbers of one answer
LARGEST = 10**18  # of a number
LONGEST = 120  # characters of a name or a unit
SIGNATURE = b"\x89PNG\r\n\x1a\n"
SAMPLE = Path(__file__).with_name("sample")
NOTEBOOK = re.compile(r"\d\d", re.ASCII)


@dataclass(frozen=True)
class Measurement:
    """The numbers by which one notebook answers one question, and the day of it."""

    notebook: str
    date: str | None
    numbers: dict[str, float]


@dataclass(frozen=True)
class Drawn:
    """A kept picture: the file's bytes, its size, what is to be seen, and the day."""

    png: bytes
    width: int
    height: int
    story: str
    date: str | None


@dataclass(frozen=True)
class Comparison:
    """What was predicted under a key, and what was measured, or modelled."""

    key: str
    predicted: float | None
    measured: float
    unit: str
    modelled: bool
    date: str | None
    pictures: tuple[Drawn, ...] = ()

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None where there is none."""
        return self.measured / self.predicted if self.predicted else None

    @property
    def is_hit(self) -> bool:
        """Whether the prediction was right within a factor of 2."""
        if self.ratio is None:
            return self.predicted == self.measured
        return 0.5 <= self.ratio <= 2


@dataclass
class Kept:
    """All of it. `problems` are sentences."""

    answers: dict[int, dict[str, Measurement]] = field(default_factory=dict)
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    not_compared: list[str] = field(default_factory=list)  # keys that were predicted, no more
    problems: list[str] = field(default_factory=list)

    @property
    def predicted(self) -> list[Comparison]:
        """The comparisons that have a prediction."""
        return [one for one in self.comparisons.values() if one.predicted is not None]

    def days(self) -> dict[str, list[str]]:
        """By notebook, the days on which it measured something that is shown."""
        found: dict[str, set[str]] = {}
        for answers in self.answers.values():
            for one in answers.values():
                found.setdefault(one.notebook, set()).add(one.date or "?")
        for one in self.comparisons.values():
            found.setdefault(one.key[:2], set()).add(one.date or "?")
        return {notebook: sorted(days) for notebook, days in sorted(found.items())}


def read(folder: Path | None = None) -> Kept:
    """What there is in `folder`, `my/` unless told."""
    folder = folder or my_dir()
    kept = Kept()
    say = kept.problems.append
    file = folder / "answers.json"
    for number, entry in sorted(entries(file, say, is_question), key=lambda x: int(x[0])):
        kept.answers[int(number)] = dict(measurements(number, entry, file, say))
    file = folder / "compared.json"
    for key, entry in entries(file, say, pictures.GOOD_KEY.fullmatch):
        found = comparison(key, entry, file, say)
        if found:
            kept.comparisons[key] = found
    predicted = dict(entries(folder / "predictions.json", say, pictures.GOOD_KEY.fullmatch))
    kept.not_compared = sorted(predicted.keys() - kept.comparisons.keys())
    loaded(folder / "progress.json", say)  # what it says is counted elsewhere, silently
    return kept


def is_question(key: str) -> bool:
    return key in {str(number) for number in range(1, 11)}


def entries(file: Path, say: Callable, is_known: Callable) -> Iterator[tuple[str, object]]:
    """The entries of a file that the workbook can have written."""
    found = loaded(file, say)
    unknown = [key for key in found if not is_known(key)]
    if unknown:
        names = ", ".join(f"`{clean(key)}`" for key in unknown[:3])
        say(text("report.problem.unknown", file=file, names=names, count=len(unknown)))
    yield from [(key, value) for key, value in found.items() if is_known(key)][:MOST_ENTRIES]


def loaded(path: Path, say: Callable) -> dict:
    """The object that a file holds; empty, with a sentence, where it is damaged."""
    try:
        found = json.loads(read_at_most(path, MOST_BYTES).decode("utf-8-sig"))
        if not isinstance(found, dict):
            raise ValueError("it holds no JSON object")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        say(text("report.problem.damaged", file=path, reason=clean(error)))
        return {}
    return found


def measurements(
    number: str, entry, file: Path, say: Callable
) -> Iterator[tuple[str, Measurement]]:
    """The answers to one question, by notebook."""
    if isinstance(entry, dict) and "measured" in entry:  # as the first notebooks kept them
        say(text("report.problem.old", file=file, number=number))
        return
    found = entry if isinstance(entry, dict) else {None: None}
    for notebook, one in list(found.items())[:100]:
        numbers = one.get("measured") if isinstance(one, dict) else None
        good = {
            clean(name): float(value)
            for name, value in (numbers.items() if isinstance(numbers, dict) else ())
            if is_number(value)
        }
        if good and isinstance(notebook, str) and NOTEBOOK.fullmatch(notebook):
            some = dict(list(good.items())[:MOST_ENTRIES])
            yield notebook, Measurement(notebook, day(one.get("date")), some)
        else:
            say(text("report.problem.answer", file=file, number=number))


def comparison(key: str, entry, file: Path, say: Callable) -> Comparison | None:
    """One entry of `compared.json`; None, with a sentence, when it can't be used."""
    if not isinstance(entry, dict) or not is_number(entry.get("measured")):
        say(text("report.problem.comparison", file=file, key=key))
        return None
    guess = entry.get("predicted")
    kept = entry.get("pictures")
    drawn = [
        picture(key, one, file, say)
        for one in (kept if isinstance(kept, list) else [])[: pictures.MOST]
    ]
    return Comparison(
        key,
        float(guess) if is_number(guess) else None,
        float(entry["measured"]),
        clean(entry.get("unit", "")),
        entry.get("modelled") is True,
        day(entry.get("date")),
        tuple(one for one in drawn if one),
    )


def picture(key: str, entry, file: Path, say: Callable) -> Drawn | None:
    """A picture of `pictures/` beside `file`; only what `pictures.keep` may have made is read."""
    name = entry.get("file") if isinstance(entry, dict) else None
    if not isinstance(name, str) or name not in {
        f"{key}-{number}.png" for number in range(1, pictures.MOST + 1)
    }:
        say(text("report.problem.comparison", file=file, key=key))
        return None
    path = file.with_name(pictures.folder().name) / name
    try:
        if path.is_symlink():
            raise OSError("a link, not a file")
        png = read_at_most(path, pictures.MOST_BYTES)
        if png[:8] != SIGNATURE or png[12:16] != b"IHDR" or png[-8:-4] != b"IEND":
            raise OSError("not a whole PNG file")
    except OSError as error:
        say(text("report.problem.picture", file=path, notebook=key[:2], reason=clean(error)))
        return None
    width, height = struct.unpack(">II", png[16:24])
    return Drawn(png, width, height, clean(entry.get("story", ""), 600), day(entry.get("date")))


def is_number(value) -> bool:
    """Whether it is one that can be shown and compared; NaN is not, nor what nothing measures."""
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


def day(value) -> str | None:
    """A date as `2026-11-30`; None for anything else."""
    try:
        return date.fromisoformat(value).isoformat() if isinstance(value, str) else None
    except ValueError:
        return None


def clean(value, longest: int = LONGEST) -> str:
    """A text of somebody's file on one line, cut short; what can't be printed becomes �."""
    line = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(str(value).split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"
