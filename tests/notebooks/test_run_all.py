"""Run All goes to the end of a notebook whatever stands in its exercise cells.

The cells are those of the built notebooks: first cell, exercises, checks. Cells that load the real
model are left out, since they are not what is tested here.
"""

import copy
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
    assert any(cell.id.startswith("check-") for cell in notebook.cells)
    return {cell.id: said(cell) for cell in notebook.cells if cell.id.startswith("check-")}


def said(check):
    return "".join(output["data"]["text/plain"] for output in check.outputs)


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


def filled(cell, body):
    assert STUB in cell.source
    return cell.source.replace(STUB, "\n    " + body)


def typed(cell):
    """As a learner would: the def line stays as it was given, the body is written."""
    item = registry.get(cell.metadata["labkit"]["exercise"])
    before = re.split(r"\n(?:async )?def ", cell.source)[0]
    return f"{before}\n{Hole.of(item).reference}"


# What stands in the exercise cell -> what its check then says, in the order in which they are tried:
# the decorator of a cell with a syntax error never runs, and the check must not go by the solution
# that stood there before.
TRIED = {
    "blank": (lambda cell: cell.source, "Not attempted yet"),
    "solution": (typed, "Passed."),
    "syntax": (lambda cell: filled(cell, "x = = 1"), "Python cannot read the exercise cell"),
    "endless": (
        lambda cell: filled(cell, "while True: pass"), "was last seen at: `while True: pass`"
    ),
    "raises": (lambda cell: filled(cell, "raise RuntimeError('boom')"), "RuntimeError: boom"),
}  # fmt: skip


def test_whatever_stands_in_the_cells_stops_nothing_and_is_told(notebook):
    """In one kernel: each cell and its check once for all that is tried."""
    cells = []
    for kind, (write, _) in TRIED.items():
        for cell in notebook.cells:
            if cell.id.startswith(("ex-", "check-")):
                one = copy.deepcopy(cell)
                one.id += f"-{kind}"
                if cell.id.startswith("ex-"):
                    one.source = write(cell)
                elif kind == "endless":
                    one.source = cell.source.replace('")', '", seconds=1)')
                cells.append(one)
    notebook.cells = [cell for cell in notebook.cells if cell.id.startswith("start")] + cells
    answers = run(notebook)
    wrong = {
        id: answer for id, answer in answers.items() if TRIED[id.split("-")[-1]][1] not in answer
    }
    assert not wrong
