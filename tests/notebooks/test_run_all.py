"""Run All goes to the end of a notebook whatever stands in its exercise cells.

The cells are those of the built notebooks: first cell, exercises, checks. Cells that load the real
model are left out, since they are not what is tested here.
"""

import re

import nbformat
import pytest
from nbclient import NotebookClient

from labkit.paths import repo_root
from labkit.workbook import registry
from labkit.workbook.parts import Hole

NOTEBOOKS = sorted((repo_root() / "notebooks").glob("[0-9]*.ipynb"))
STUB = "\n    ..."


def exercise_cells(path):
    notebook = nbformat.read(path, as_version=4)
    kept = ("start", "ex-", "check-")
    notebook.cells = [cell for cell in notebook.cells if cell.id.startswith(kept)]
    return notebook


def run(notebook):
    """Executes as Run All does: an error ends it, but in a cell tagged raises-exception."""
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    checks = {
        cell.id: "".join(output["data"]["text/plain"] for output in cell.outputs)
        for cell in notebook.cells
        if cell.id.startswith("check-")
    }
    assert checks
    return checks


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    found = exercise_cells(request.param)
    number = request.param.stem[:2]
    ids = [item.id for item in registry.exercises().values() if item.notebook == number]
    if not ids:
        pytest.skip(f"the registry has no exercise of notebook {number}")
    holes = [cell for cell in found.cells if cell.id.startswith("ex-")]
    assert [cell.metadata["labkit"]["exercise"] for cell in holes] == ids
    return found


def fill(notebook, body):
    for cell in notebook.cells:
        if cell.id.startswith("ex-"):
            assert STUB in cell.source
            cell.source = cell.source.replace(STUB, "\n    " + body)


def test_blank_cells_are_not_attempted(notebook):
    said = run(notebook)
    assert said
    assert all("Not attempted yet" in answer for answer in said.values())


def test_syntax_errors_stop_nothing(notebook):
    fill(notebook, "x = = 1")
    said = run(notebook)
    assert all("Python cannot read the exercise cell" in answer for answer in said.values())


def test_endless_loops_stop_nothing(notebook):
    fill(notebook, "while True: pass")
    for cell in notebook.cells:
        if cell.id.startswith("check-"):
            cell.source = cell.source.replace('")', '", seconds=1)')
    said = run(notebook)
    assert all("was last seen at: `while True: pass`" in answer for answer in said.values())


def test_exceptions_stop_nothing(notebook):
    fill(notebook, "raise RuntimeError('boom')")
    said = run(notebook)
    assert all("RuntimeError: boom" in answer for answer in said.values())


def test_solutions_typed_into_the_cells_pass(notebook):
    """As a learner would: the def line stays as it was given, the body is written."""
    for cell in notebook.cells:
        if cell.id.startswith("ex-"):
            item = registry.get(cell.metadata["labkit"]["exercise"])
            before = re.split(r"\n(?:async )?def ", cell.source)[0]
            cell.source = f"{before}\n{Hole.of(item).reference}"
    said = run(notebook)
    assert all("Passed." in answer for answer in said.values())


def test_an_edit_that_broke_the_cell_is_seen_although_an_older_one_ran(notebook):
    """The decorator of such a cell never runs; the check must not go by the older text."""
    first = next(cell for cell in notebook.cells if cell.id.startswith("ex-"))
    item = registry.get(first.metadata["labkit"]["exercise"])
    check = next(cell for cell in notebook.cells if cell.id == first.id.replace("ex-", "check-"))
    before, _, _ = first.source.partition("\ndef ")
    right = nbformat.v4.new_code_cell(f"{before}\n{Hole.of(item).reference}")
    first.source = first.source.replace(STUB, "\n    x = = 1")
    notebook.cells = [notebook.cells[0], right, first, check]
    assert "Python cannot read the exercise cell" in run(notebook)[check.id]
