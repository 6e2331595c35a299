"""What is committed under `notebooks/` and `solutions/` is what the sources and labkit say."""

import nbformat
import pytest

from labkit.paths import repo_root
from labkit.workbook import registry
from labkit.workbook.notebooks_cli import main

BUILT = sorted((repo_root() / "notebooks").rglob("[0-9]*.ipynb"))
SOLUTIONS = sorted((repo_root() / "solutions").glob("*.ipynb"))


def test_the_built_notebooks_are_up_to_date_in_both_languages(capsys):
    assert main(["check"]) == 0, capsys.readouterr().out


def test_the_table_of_known_mistakes_is_of_all_that_a_notebook_has(capsys):
    """Of one notebook here: that each of all exercises is caught, test_exercises sees to."""
    assert main(["mistakes", "03"]) == 0
    said = capsys.readouterr().out
    known = [e for e in registry.exercises().values() if e.notebook == "03"]
    assert said.count("  caught  ") == sum(len(e.mistakes) for e in known) > 9


@pytest.mark.parametrize("path", BUILT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_what_a_learner_opens_holds_no_solution(path):
    notebook = nbformat.read(path, as_version=4)
    cells = [cell for cell in notebook.cells if cell.id.startswith("ex-")]
    for cell in cells:
        item = registry.get(cell.metadata["labkit"]["exercise"])
        assert cell.source.endswith(f"# ✏️ Exercise {item.id}: your code here\n    ...")
        assert cell.metadata["tags"] == ["raises-exception"]


@pytest.mark.parametrize("path", BUILT, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_both_languages_have_the_same_code_so_that_one_of_them_is_run(path):
    def code(path):
        cells = nbformat.read(path, as_version=4).cells
        said = [c for c in cells if c.cell_type == "code"]
        return [(c.id, c.source.replace(', language="ko"', ""), c.metadata) for c in said]

    other = path.parent.parent if path.parent.name == "ko" else path.parent / "ko"
    assert code(path) == code(other / path.name)


@pytest.mark.parametrize("path", SOLUTIONS, ids=lambda path: path.stem)
def test_a_solution_has_been_run_to_its_end_without_an_error(path):
    code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    counts = [cell.execution_count for cell in code if cell.source.strip()]
    assert None not in counts
    assert counts == sorted(counts)
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]


def test_the_answer_of_the_real_model_is_stored_as_it_was_streamed():
    notebook = nbformat.read(next(p for p in SOLUTIONS if p.stem.startswith("01")), as_version=4)
    printed = [
        output.text
        for cell in notebook.cells
        if "streamed, unstreamed = deliver(" in cell.source
        for output in cell.get("outputs", [])
        if output.output_type == "stream"
    ]
    assert "sky" in "".join(printed)
