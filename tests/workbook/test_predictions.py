"""Predictions are kept when the slider moves, and compared with what was measured."""

import json
import os
import subprocess
import sys

import pytest

from labkit.workbook import predictions
from labkit.workbook.predictions import answer, compare, predict


@pytest.fixture(autouse=True)
def my(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_MY", str(tmp_path))
    return tmp_path


def test_a_prediction_is_kept_when_the_slider_moves_and_is_there_again_later():
    box = predict("01.x", low=1, high=40, unit="times")
    assert predictions.kept("predictions.json") == {}  # showing the slider predicts nothing
    box.slider.value = 12.5
    assert predictions.kept("predictions.json") == {"01.x": 12.5}
    again = predict("01.x", low=1, high=40, unit="times")
    assert again.slider.value == 12.5
    assert again.label.value == "kept: 12.5 times"
    assert repr(again) == "kept: 12.5 times [1 to 40 times]"


@pytest.mark.parametrize(
    ("predicted", "measured", "outcome", "words"),
    [
        (10, 11, "passed", "Within 25 %"),
        (10, 8.1, "passed", "Within 25 %"),
        (10, 40, "note", "4 times your prediction"),
        (10, 5, "note", "0.5 times your prediction"),
        (0, 5, "note", "inf times"),
    ],
)
def test_compare_says_how_far_off(predicted, measured, outcome, words):
    predictions.keep("predictions.json", "01.x", predicted)
    found = compare("01.x", measured, "times")
    assert found.outcome == outcome
    assert words in found.title


def test_compare_without_a_prediction_says_what_was_measured():
    assert "Measured: 3 times. You made no prediction" in compare("01.x", 3.0, "times").title


def test_answers_are_kept_by_question_and_notebook_with_their_date(my, monkeypatch):
    monkeypatch.setattr(predictions, "_notebook", "01")
    answer(5, first_s=0.25)
    answer(6, ratio=25)
    predictions.begin("03")
    answer(6, itl_growth=1)
    answer(6, itl_growth=2)  # run again: the last counts
    kept = json.loads((my / "answers.json").read_text(encoding="utf-8"))
    assert kept["5"]["01"]["measured"] == {"first_s": 0.25}
    assert set(kept["5"]["01"]) == {"date", "measured"}
    assert {name: one["measured"] for name, one in kept["6"].items()} == {
        "01": {"ratio": 25.0},
        "03": {"itl_growth": 2.0},
    }


def test_an_answer_kept_before_notebooks_were_told_apart_is_replaced(my):
    predictions.keep("answers.json", "6", {"date": "2026-01-01", "measured": {"ratio": 1}})
    answer(6, ratio=2)
    (found,) = predictions.kept("answers.json")["6"].values()
    assert found["measured"] == {"ratio": 2.0}


def test_a_damaged_file_is_put_aside_and_not_overwritten(my):
    (my / "answers.json").write_text('{"5": 1,}', encoding="utf-8")
    answer(6, ratio=2)
    damaged = list(my.glob("answers.damaged-*.json"))
    assert [file.read_text(encoding="utf-8") for file in damaged] == ['{"5": 1,}']
    assert set(predictions.kept("answers.json")) == {"6"}


@pytest.mark.parametrize("odd", ["NaN", "1e999", "true", '"3"', "[]", "null"])
def test_a_prediction_that_is_no_number_counts_as_none(my, odd):
    (my / "predictions.json").write_text(f'{{"k": {odd}}}', encoding="utf-8")
    assert "no prediction" in repr(compare("k", 3.0, "s"))
    assert predict("k", low=1, high=9, unit="s").slider.value == 1


def test_an_answer_that_cannot_be_kept_is_shown_and_nothing_raises(my, monkeypatch):
    (my / "file").write_text("a file, no folder", encoding="utf-8")
    monkeypatch.setenv("LABKIT_MY", str(my / "file"))
    said = repr(answer(6, ratio=2.5))
    assert "2.5" in said and "could not be written" in said and "kept for the report" not in said


def test_two_notebooks_at_once_lose_no_answer(my):
    """Each of three processes keeps 40 entries of its own, once."""
    code = (
        "import sys; from labkit.workbook import predictions\n"
        "for i in range(40): predictions.keep('answers.json', sys.argv[1] + str(i), i)"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "abc"]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert len(predictions.kept("answers.json")) == 120
    assert [file.name for file in my.iterdir()] == ["answers.json"]


def test_a_lock_that_was_left_behind_holds_nobody_up(my):
    lock = my / ".answers.json.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    answer(6, ratio=2)
    assert predictions.kept("answers.json") and not lock.exists()
