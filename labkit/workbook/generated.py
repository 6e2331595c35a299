"""The cells that nobody writes by hand: header, exercises, views of labkit's code, first cell."""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from labkit.workbook import cut
from labkit.workbook.registry import Exercise
from labkit.workbook.routes import core_minutes
from labkit.workbook.source import Cell, Source, SourceError

COMMANDS = (
    "answer",
    "check",
    "compare",
    "doctor",
    "hint",
    "language",
    "predict",
    "progress",
    "reset",
    "solution",
    "start",
    "use",
    "use_module",
)
FOR_EXERCISES = {"check", "hint", "reset", "solution"}
# What is said to ruff and not to readers: "fmt: skip" as a whole, and a rule before its reason.
FOR_TOOLS = re.compile(
    r"(?<=# )noqa: [A-Z]+\d+[-, ]+(?=\w)|  # (?:noqa(: [A-Z]+\d+)?|fmt: skip)$", re.MULTILINE
)


@dataclass(frozen=True)
class Book:
    """What notebooks are built from, beside their sources."""

    root: Path  # the checkout: `labkit/`, `notebooks/`, `solutions/`
    exercises: Mapping[str, Exercise]
    text: Callable[..., str]  # text(key, language, **values) of the catalogue
    not_attempted: Callable[[str, str], Mapping[str, str]]  # what `check` shows of a stub

    def module_source(self, module: str) -> str:
        """The text of a module, "\\n" between its lines. Nothing is imported."""
        path = self.root.joinpath(*module.split(".")).with_suffix(".py")
        return path.read_text(encoding="utf-8")

    def of_notebook(self, number: str) -> list[Exercise]:
        """The exercises whose id begins with `number`, in order."""
        return [e for id_, e in sorted(self.exercises.items()) if id_.startswith(f"{number}.")]


@dataclass(frozen=True)
class Edition:
    """One of the notebooks that a source becomes."""

    language: str
    solution: bool = False


def first_cell(source: Source, edition: Edition) -> NotebookNode:
    """The import of the commands that this notebook uses, and `start`."""
    code = "\n".join(cell.text for cell in source.cells if cell.kind == "code")
    used = {command for command in COMMANDS if re.search(rf"\b{command}\(", code)} | {"start"}
    if any(cell.kind == "exercise" for cell in source.cells):
        used |= FOR_EXERCISES
    arguments = f'"{source.number}"'
    if edition.language != "en":
        arguments += f', language="{edition.language}"'
    if edition.solution:
        arguments += ", keep=False"
    text = f"from labkit.workbook import {', '.join(sorted(used))}\n\nstart({arguments})"
    # Its answer holds paths and counts, which differ from one machine to the next.
    return new_code_cell(text, id="start", metadata={"tags": ["nbval-ignore-output"]})


def header(book: Book, source: Source, cell: Cell, edition: Edition, seconds: int | None):
    """Difficulty, minutes, run time, the exercises, and those of earlier notebooks it builds on.

    `seconds` is the measured run time of the solutions, when there is one.
    """
    say, language = book.text, edition.language
    exercises = book.of_notebook(source.number)
    minutes = cell.minutes + sum(e.minutes for e in exercises)
    core = core_minutes(cell.minutes, exercises)
    stars = _stars(max((e.difficulty for e in exercises), default=1))
    key = "header.facts" if exercises else "header.no_exercises"
    facts = say(key, language, stars=stars, minutes=minutes)
    if core != minutes:
        key = "header.core" if core else "header.beside"
        facts += " " + say(key, language, minutes=core or cell.minutes)
    if seconds:
        facts += " · " + say("header.run", language, seconds=seconds)
    parts = [facts]
    if exercises:
        rows = [_row(say, e, language) for e in exercises]
        columns = say("header.columns", language)
        parts.append("\n".join([f"| {columns} |", "| --- | --- | --- | --- | --- |", *rows]))
    needed = _exercises_used(source) - {e.id for e in exercises}
    if needed:
        parts.append(say("header.needs", language, ids=", ".join(sorted(needed))))
    if edition.solution:
        parts.append(say("header.solutions" if exercises else "header.executed", language))
    return new_markdown_cell("\n\n".join(parts), id="header")


def exercise_group(book: Book, cell: Cell, edition: Edition) -> list[NotebookNode]:
    """Heading, exercise cell, check cell; and hints, where the solution isn't shown."""
    if cell.text not in book.exercises:
        known = ", ".join(book.exercises)
        raise SourceError(f"{cell.where}: there is no exercise {cell.text!r}; there are {known}")
    exercise, language = book.exercises[cell.text], edition.language
    key = exercise.id.replace(".", "-")
    module = book.module_source(exercise.module)
    code = cut.exercise_cell(
        module, exercise.symbol, exercise.module, exercise.id, whole=edition.solution
    )
    metadata = {"labkit": {"exercise": exercise.id}}
    if not edition.solution:
        metadata["tags"] = ["raises-exception"]  # a learner's slip does not end Run All
    check = new_code_cell(f'check("{exercise.id}")', id=f"check-{key}")
    group = [
        new_markdown_cell(_heading(book, exercise, language), id=f"heading-{key}"),
        new_code_cell(code, id=f"ex-{key}", metadata=metadata),
        check,
    ]
    if not edition.solution:
        data = dict(book.not_attempted(exercise.id, language))
        check.outputs = [new_output("display_data", data=data)]
        check.execution_count = int(exercise.id.rpartition(".")[2])
        group.append(new_markdown_cell(_hints(book, exercise, language), id=f"hints-{key}"))
    return group


def view(book: Book, source: Source, cell: Cell, edition: Edition) -> NotebookNode:
    """Code of labkit to read: a class without its bodies, a function whole."""
    module, _, symbol = cell.text.partition(":")
    holes = {e.symbol: e.id for e in book.exercises.values() if e.module == module}
    if holes.get(symbol, "") >= source.number:
        raise SourceError(f"{cell.where}: this would show the solution of {holes[symbol]}")
    text = book.module_source(module)
    is_class = isinstance(cut.find(text, symbol).node, ast.ClassDef)
    whole = cut.extract(text, symbol, decorators=True)
    code = cut.elide(text, symbol, holes) if is_class else whole
    caption = book.text(
        "show.function" if code == whole else "show.class",
        edition.language,
        symbol=symbol,
        path=_path(module),
    )
    code = FOR_TOOLS.sub("", code)
    if cut.MARK in code:
        caption += " " + book.text("show.holes", edition.language)
    fence = "````" if "```" in code else "```"
    return new_markdown_cell(
        f"{caption}\n\n{fence}python\n{code}\n{fence}",
        id="show-" + re.sub(r"\W+", "-", symbol),
        metadata={"labkit": {"show": cell.text}},
    )


def _heading(book: Book, exercise: Exercise, language: str) -> str:
    title = book.text(
        "heading.title",
        language,
        id=exercise.id,
        title=book.text(f"{exercise.id}.title", language),
    )
    facts = book.text(
        "heading.facts",
        language,
        route=book.text("route.core" if exercise.core else "route.further", language),
        stars=_stars(exercise.difficulty),
        minutes=exercise.minutes,
        symbol=exercise.symbol,
        path=_path(exercise.module),
    )
    return f"### {title}\n\n{facts}"


def _hints(book: Book, exercise: Exercise, language: str) -> str:
    folded = []
    for number in (1, 2):
        label = book.text("hint.fold", language, number=number)
        hint = book.text(f"{exercise.id}.hint{number}", language)
        folded.append(f"<details><summary>{label}</summary>\n\n{hint}\n\n</details>")
    stuck, more = (
        book.text("hint.stuck", language),
        book.text("hint.more", language, id=exercise.id),
    )
    folded.append(f"<details><summary>{stuck}</summary>\n\n{more}\n\n</details>")
    return "\n".join(folded)


def _row(say: Callable[..., str], exercise: Exercise, language: str) -> str:
    route = say("route.core" if exercise.core else "route.further", language)
    title = f"{say(f'{exercise.id}.title', language)}: `{exercise.symbol}`"
    cells = [exercise.id, title, route, _stars(exercise.difficulty), str(exercise.minutes)]
    return f"| {' | '.join(cells)} |"


def _exercises_used(source: Source) -> set[str]:
    code = "\n".join(cell.text for cell in source.cells if cell.kind == "code")
    return set(re.findall(r"""\buse(?:_module)?\(\s*["'](\d\d\.\d+)["']""", code))


def _stars(difficulty: int) -> str:
    return "★" * difficulty + "☆" * (3 - difficulty)


def _path(module: str) -> str:
    return module.replace(".", "/") + ".py"
