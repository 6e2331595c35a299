"""`serve --mine`: a learner's passed parts answer over HTTP, in the process where they belong."""

import pytest

from labkit.workbook import parts, registry
from labkit.workbook.parts import Hole

ON_THE_NAIVE_RUNG = ["01.1", "01.2", "01.3"]


@pytest.fixture
def my(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_MY", str(tmp_path / "my"))
    return tmp_path / "my"


def part(exercise_id: str) -> str:
    return Hole.of(registry.get(exercise_id)).reference


def mine_of(server) -> list[str]:
    return server.http.get("/v1/requests").json()["mine"]


def test_solutions_as_parts_give_the_same_text_and_are_named(server, shared, my):
    for exercise_id in ON_THE_NAIVE_RUNG:
        parts.save_part(exercise_id, part(exercise_id))
    mine = server("--rung", "naive", "--mine")
    assert mine_of(mine) == ON_THE_NAIVE_RUNG
    assert "your own parts: 01.1, 01.2, 01.3" in mine.said()
    assert mine.text("한글 tea") == shared.text("한글 tea")


def test_a_part_of_either_process_is_what_runs(server, shared, my):
    """One answers from the engine process (the next token), one from the API's (the text)."""
    wrong = part("01.1").replace("argmax()", "argmin()")
    said = "return window[len(context) :]"
    loud = part("01.3").replace(said, said + " * 2")
    assert wrong != part("01.1") and loud != part("01.3")
    parts.save_part("01.1", wrong)
    assert server("--rung", "naive", "--mine").text() != shared.text()
    parts.put_aside("01.1")
    parts.save_part("01.3", loud)
    assert len(server("--rung", "naive", "--mine").text()) > len(shared.text())


def test_without_mine_and_off_the_path_nothing_of_it_runs(server, shared, my):
    parts.save_part("01.1", part("01.1").replace("argmax()", "argmin()"))
    assert server("--rung", "naive").text() == shared.text()
    mine = server("--mine")  # the last rung has another next token
    assert mine_of(mine) == [] and mine.text() == shared.text()


def test_a_damaged_part_is_told_and_labkits_own_runs(server, shared, my):
    parts.save_part("01.2", "def step(self):\n    return oops(\n")
    mine = server("--rung", "naive", "--mine")
    assert mine_of(mine) == [] and mine.text() == shared.text()
    assert "01.2" in mine.said() and "labkit's own runs" in mine.said()
