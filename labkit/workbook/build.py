"""Builds the notebooks from their sources and from labkit, and says which are out of date.

One source becomes three notebooks: `notebooks/NN.ipynb` and `notebooks/ko/NN.ipynb` with blank
exercises, and `solutions/NN.ipynb` with whole ones, which keeps the outputs of its last run.
Building is a pure function of the sources, labkit's text and those outputs: what is the same
goes out byte for byte the same.
"""

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.paths import repo_root, write_atomic
from labkit.workbook import cut, generated, parts
from labkit.workbook.generated import Book, Edition
from labkit.workbook.registry import Exercise
from labkit.workbook.source import Cell, Source, SourceError, read, text_hash

EDITIONS = {
    "notebooks": Edition("en"),
    "notebooks/ko": Edition("ko"),
    "solutions": Edition("en", solution=True),
}
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


@dataclass
class Stale:
    """A notebook that is not what its source says."""

    path: str
    changed: list[str] = field(default_factory=list)  # the parts of labkit that it shows changed
    diff: str = ""


def labkit_book() -> Book:
    """The book of this checkout."""
    from labkit.workbook import catalogue, findings, registry

    return Book(
        repo_root(),
        registry.exercises(),
        catalogue.text,
        lambda exercise_id, lang: findings.not_attempted(exercise_id, lang).mimebundle(),
    )


def exercise_cell(exercise: Exercise) -> str:
    """The blank cell of one exercise of labkit, as its notebook has it."""
    source = parts.module_source(exercise.module)
    return cut.exercise_cell(source, exercise.symbol, exercise.module, exercise.id)


def sources(book: Book) -> list[Source]:
    """All sources, in order."""
    return [read(path) for path in sorted((book.root / "notebooks" / "source").glob("*.py"))]


def render(book: Book) -> dict[str, str]:
    """Every notebook as it should be: {path relative to the checkout: file text}."""
    return {
        f"{folder}/{source.name}.ipynb": dump(notebook(book, source, edition))
        for source in sources(book)
        for folder, edition in EDITIONS.items()
    }


def build(book: Book) -> list[str]:
    """Writes the notebooks that differ, and returns their paths."""
    written = []
    for path, text in render(book).items():
        if _file_text(book.root / path) != text:
            write_atomic(book.root / path, text)
            written.append(path)
    return written


def stale(book: Book) -> list[Stale]:
    """Notebooks whose file is missing, or not what `build` would write now."""
    return [
        _difference(path, _file_text(book.root / path), text)
        for path, text in render(book).items()
        if _file_text(book.root / path) != text
    ]


def problems(book: Book) -> Iterator[str]:
    """What a person has to mend: translations, exercises left out, files that no source makes."""
    all_sources = sources(book)
    for source in all_sources:
        for cell in source.cells:
            if cell.translation_problem:
                yield cell.translation_problem
        placed = {cell.text for cell in source.cells if cell.kind == "exercise"}
        for exercise in book.of_notebook(source.number):
            if exercise.id not in placed:
                mark = f'# %% exercise="{exercise.id}"'
                yield f"{source.name}: exercise {exercise.id} stands nowhere in it; add {mark}"
        solution = saved_solution(book, source.name)
        if solution and any(
            cell.cell_type == "code" and cell.execution_count is None for cell in solution.cells
        ):
            yield (
                f"solutions/{source.name}.ipynb: there are cells that have not been run since they "
                f"changed; run python3 -m labkit notebooks run {source.number}"
            )
    names = {source.name for source in all_sources}
    for folder in EDITIONS:
        for path in sorted((book.root / folder).glob("*.ipynb")):
            if path.stem not in names:
                yield f"{folder}/{path.name}: no source makes this notebook; delete it"


def notebook(book: Book, source: Source, edition: Edition) -> NotebookNode:
    """One notebook of a source. SourceError names the cell that can't be built."""
    before = saved_solution(book, source.name)
    seconds = before.metadata.get("labkit", {}).get("run_seconds") if before else None
    cells = [generated.first_cell(source, edition)]
    for cell in source.cells:
        try:
            cells += _cells(book, source, cell, edition, seconds)
        except (LookupError, ValueError, OSError) as error:
            if isinstance(error, SourceError):
                raise
            raise SourceError(f"{cell.where}: {error}") from error
    built = new_notebook(cells=_with_own_ids(cells), metadata=METADATA)
    built.metadata["labkit"] = {"notebook": source.name, "language": edition.language}
    if edition.solution and before:
        _keep_outputs(built, before)
        if seconds:
            built.metadata["labkit"]["run_seconds"] = seconds
    return built


def dump(built: NotebookNode) -> str:
    """The text of a notebook file; the same notebook always gives the same bytes."""
    nbformat.validate(built)
    return nbformat.writes(built, version=4) + "\n"


def saved_solution(book: Book, name: str) -> NotebookNode | None:
    """The solution notebook as it lies on disk, with the outputs of its last run."""
    return _parsed(_file_text(book.root / "solutions" / f"{name}.ipynb"))


def _cells(
    book: Book, source: Source, cell: Cell, edition: Edition, seconds: int | None
) -> list[NotebookNode]:
    if cell.kind == "prose":
        # The id is that of the English, so that both languages have the same ids.
        return [new_markdown_cell(cell.prose(edition.language), id=f"text-{text_hash(cell.text)}")]
    if cell.kind == "code":
        metadata = {"tags": list(cell.tags)} if cell.tags else {}
        return [new_code_cell(cell.text, id=f"code-{text_hash(cell.text)}", metadata=metadata)]
    if cell.kind == "header":
        return [generated.header(book, source, cell, edition, seconds)]
    if cell.kind == "show":
        return [generated.view(book, source, cell, edition)]
    return generated.exercise_group(book, cell, edition)


def _with_own_ids(cells: list[NotebookNode]) -> list[NotebookNode]:
    """Cells with the same content have the same id; the second becomes id-2."""
    seen: dict[str, int] = {}
    for cell in cells:
        seen[cell.id] = seen.get(cell.id, 0) + 1
        if seen[cell.id] > 1:
            if cell.id.startswith("ex-"):
                raise SourceError(f"exercise {cell.metadata.labkit.exercise} stands here twice")
            cell.id = f"{cell.id}-{seen[cell.id]}"
    return cells


def _keep_outputs(built: NotebookNode, before: NotebookNode) -> None:
    """Takes over what a run has put out for cells whose text is the same."""
    old = {cell.id: cell for cell in before.cells if cell.cell_type == "code"}
    for cell in built.cells:
        if cell.cell_type == "code" and cell.id in old and old[cell.id].source == cell.source:
            cell.outputs = old[cell.id].outputs
            cell.execution_count = old[cell.id].execution_count


def _difference(path: str, old: str, new: str) -> Stale:
    """Cells as text where these differ, else the file's own lines."""
    if not old:
        return Stale(path, diff=f"{path}: there is no such file yet")
    before, after = _parsed(old), _parsed(new)
    if before is None:
        return Stale(path, diff=f"{path}: the file is not a notebook")
    lines = [_readable(before), _readable(after)]
    if lines[0] == lines[1]:
        lines = [old.splitlines(), new.splitlines()]
    diff = difflib.unified_diff(*lines, f"{path} (file)", f"{path} (built)", lineterm="", n=2)
    return Stale(path, _parts_changed(before, after), "\n".join(diff))


def _parsed(text: str) -> NotebookNode | None:
    """The notebook that a file's text holds; None when it is damaged or none."""
    try:
        nbformat.validate(json.loads(text))
        return nbformat.reads(text, as_version=4)
    except (ValueError, AttributeError, nbformat.ValidationError):
        return None


def _readable(notebook: NotebookNode) -> list[str]:
    lines = []
    for cell in notebook.cells:
        lines += [f"# %% {cell.cell_type} {cell.id}", *cell.source.split("\n"), ""]
    return lines


def _parts_changed(before: NotebookNode, after: NotebookNode) -> list[str]:
    """Exercises and views of labkit's code whose text is not the same."""
    old = {cell.id: cell.source for cell in before.cells}
    changed = []
    for cell in after.cells:
        part = cell.metadata.get("labkit", {})
        if part and old.get(cell.id) != cell.source:
            changed.append(
                f"exercise {part['exercise']}" if "exercise" in part else f"view of {part['show']}"
            )
    return changed


def _file_text(path: Path) -> str:
    """The file's text, line ends as they are; "" when there is no file."""
    return path.read_bytes().decode("utf-8") if path.exists() else ""
