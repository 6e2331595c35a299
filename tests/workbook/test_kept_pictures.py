"""A learner's figures are kept with their experiment: few, small, and never a fault."""

import json

import pytest

from labkit.workbook import pictures, predictions
from labkit.workbook.plots import Picture, new_picture
from labkit.workbook.predictions import compare, predict
from labkit.workbook.report import Report


@pytest.fixture(autouse=True)
def my(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_MY", str(tmp_path))
    predictions.begin("01")
    pictures.begin(keep=True)
    yield tmp_path
    pictures.begin(keep=False)


def figure(story="a story") -> Picture:
    picture, _ = new_picture("t", "x", "y", 3, 2)
    picture.story = story
    return picture


def show(story="a story") -> None:
    figure(story)._repr_png_()


def compared(my) -> dict:
    return json.loads((my / "compared.json").read_text(encoding="utf-8"))


def files(my) -> list[str]:
    return sorted(path.name for path in (my / "pictures").glob("*"))


def test_what_is_shown_between_predict_and_compare_is_kept_under_the_key(my):
    show("an illustration before")
    predict("01.x", low=1, high=9, unit="times")
    show("what was measured")
    compare("01.x", 3.0, "times")
    (kept,) = compared(my)["01.x"]["pictures"]
    assert kept["story"] == "what was measured"
    assert (my / "pictures" / kept["file"]).read_bytes().startswith(b"\x89PNG")


def test_compare_keeps_both_numbers_with_day_and_notebook(my):
    predictions.keep("predictions.json", "01.x", 4)
    compare("01.x", 3.0, "times", modelled=True)
    kept = compared(my)["01.x"]
    assert (kept["predicted"], kept["measured"], kept["unit"]) == (4, 3.0, "times")
    assert kept["modelled"] is True and kept["notebook"] == "01" and len(kept["date"]) == 10


def test_the_last_figures_count_and_a_new_run_takes_their_place(my):
    for number in range(5):
        show(str(number))
    compare("01.x", 3.0, "times")
    assert [one["story"] for one in compared(my)["01.x"]["pictures"]] == ["3", "4"]
    show("again")
    compare("01.x", 3.1, "times")
    assert [one["story"] for one in compared(my)["01.x"]["pictures"]] == ["again"]
    assert files(my) == ["01.x-1.png"]


def test_comparing_again_without_a_figure_keeps_the_older_one_with_its_day(my):
    show()
    compare("01.x", 3.0, "times")
    before = compared(my)["01.x"]["pictures"]
    compare("01.x", 3.1, "times")
    assert compared(my)["01.x"]["pictures"] == before != []


def test_solutions_and_plain_python_keep_no_picture(my):
    pictures.begin(keep=False)
    show()
    compare("01.x", 3.0, "times")
    assert compared(my)["01.x"]["pictures"] == [] and not (my / "pictures").exists()


def test_the_drawing_of_a_check_is_no_figure_of_an_experiment(my):
    Report("wrong", "no", picture=figure())._repr_html_()
    compare("01.x", 3.0, "times")
    assert compared(my)["01.x"]["pictures"] == []


@pytest.mark.parametrize("key", ["../../evil", "01.a/b", "01.", ".hidden", "01." + "x" * 99, "C:x"])
def test_a_key_that_could_leave_the_folder_names_no_file(my, key):
    show()
    compare(key, 3.0, "times")
    assert compared(my)[key]["pictures"] == [] and not (my / "pictures").exists()


def test_a_large_figure_is_drawn_less_sharply_and_a_huge_one_is_left_out(my, monkeypatch):
    small, large = len(figure().png(100)), len(figure().png())
    monkeypatch.setattr(pictures, "MOST_BYTES", (small + large) // 2)
    show()
    compare("01.x", 3.0, "times")
    assert (my / "pictures" / "01.x-1.png").stat().st_size <= (small + large) // 2 < large
    monkeypatch.setattr(pictures, "MOST_BYTES", 10)
    show()
    compare("01.y", 3.0, "times")
    assert compared(my)["01.y"]["pictures"] == []


def test_a_full_folder_takes_no_more(my, monkeypatch):
    monkeypatch.setattr(pictures, "MOST_FILES", 2)
    for key in ("01.a", "01.b", "01.c"):
        show()
        compare(key, 3.0, "times")
    assert files(my) == ["01.a-1.png", "01.b-1.png"]
    show("newer")
    compare("01.a", 3.0, "times")  # in place of its own it may
    assert compared(my)["01.a"]["pictures"][0]["story"] == "newer"


def test_a_folder_that_cannot_be_written_is_said_and_nothing_is_raised(my, monkeypatch):
    (my / "file").write_text("a file, no folder", encoding="utf-8")
    monkeypatch.setenv("LABKIT_MY", str(my / "file"))
    show()
    said = repr(compare("01.x", 3.0, "times"))
    assert "3 times" in said and "could not be written" in said
