"""Pictures of failed checks: what differs is marked and told, whatever a part has given back."""

import subprocess
import sys
import warnings

import pytest
from matplotlib.patches import Polygon

from labkit.workbook import drawings, findings
from labkit.workbook.checker import Finding
from labkit.workbook.registry import Case, Exercise


def texts(picture) -> list[str]:
    return [text.get_text() for text in picture.axes[0].texts]


def corners(picture) -> int:
    """Marks with the corner: cells of `found` that differ, and the one of the legend."""
    return sum(type(patch) is Polygon for patch in picture.axes[0].patches)


def test_rows_mark_every_cell_that_differs_and_tell_the_first():
    picture = drawings.rows([[0, 0, 7], [1, 2, 3]], [[7, 0, 0], [1, 2, 3]], "token_ids")
    assert picture.story == "token_ids: row 0, column 0: 0 expected, 7 found; 2 cells differ."
    assert corners(picture) == 2 + 1
    assert texts(picture)[-1] == "down: row, across: column"
    assert picture._repr_png_()[0].startswith(b"\x89PNG")


def test_what_is_missing_or_too_much_is_told_as_nothing():
    picture = drawings.rows([[1, 2, 3]], [[1, 2]])
    assert "row 0, column 2: 3 expected, nothing found; 1 cell differs" in picture.story
    assert "–" in texts(picture)
    picture = drawings.rows([[1, 2]], [[1, 2], [9]])
    assert "row 1, column 0: nothing expected, 9 found" in picture.story


def test_true_is_not_one_and_a_list_of_numbers_is_one_row():
    assert "T expected, 1 found" in drawings.rows([[True]], [[1]], "mask").story
    assert "no difference" in drawings.rows((1, 2), [1, 2.0]).story


def test_block_tables_are_rows_of_requests_and_columns_may_name_their_tokens():
    picture = drawings.block_tables({"a": [0, 1], "b": [3]}, {"a": [0, 1], "b": [1]}, 4)
    assert picture.story == "block tables: request b, entry 0: 3 expected, 1 found; 1 cell differs."
    assert {"a", "b", "0–3", "4–7"} <= {*texts(picture)}
    assert "request 7, entry 0" in drawings.block_tables({7: [1]}, {"7": [2]}).story  # as JSON is


def test_a_schedule_has_a_column_a_step_and_shows_who_was_preempted():
    expected = [{"a": 4}, {"tokens": {"b": 2}, "preempted": ["a"]}]
    picture = drawings.schedule(expected, [{"a": 4}, {"tokens": {"a": 1, "b": 2}}])
    assert picture.story == "schedule: request a, step 1: P expected, 1 found; 1 cell differs."
    assert texts(picture)[-1].endswith("P hatched: preempted")


@pytest.mark.parametrize(
    "found",
    [None, "text", 7, [], {}, [None], [[[1]]], {"a": None}, [{"tokens": 1}], [[object()]],
     [[float("nan"), "$x$ _^{", "한글\n"]], [list(range(5000))] * 500, {"x" * 500: ["y" * 500]},
     [{"tokens": {"a": 2}, "preempted": 5}], [{"a": {"b": [1]}}]],
)  # fmt: skip
@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (drawings.rows, [[1, 2]]),
        (drawings.block_tables, {"a": [1, 2]}),
        (drawings.schedule, [{"a": 1}]),
    ],
)
def test_whatever_is_found_there_is_a_picture_of_bounded_size(draw, expected, found):
    picture = draw(expected, found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a character that the font hasn't
        png, size = picture._repr_png_()
    assert png and picture.story.startswith(("rows", "block", "schedule"))
    assert size["width"] == 750 and size["height"] < 1000 and len(picture.story) < 300
    assert "no difference" not in picture.story


def test_a_difference_far_away_is_in_what_is_shown():
    found = [[*range(100)] for _ in range(40)]
    found[33][77] = -1
    picture = drawings.rows([[*range(100)] for _ in range(40)], found)
    assert "row 33, column 77" in picture.story and "-1" in texts(picture)
    assert "28 more rows" in texts(picture)[-1] and "more columns" in texts(picture)[-1]


def test_what_was_expected_must_be_drawable():
    with pytest.raises(ValueError, match="text can't be drawn as block tables"):
        drawings.block_tables("text", {})
    with pytest.raises(ValueError, match="can't be drawn as schedule"):
        drawings.schedule({"a": 1}, [])


def test_importing_it_loads_no_matplotlib_since_servers_read_the_exercises():
    code = "import sys, labkit.workbook.drawings; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# ------------------------------------------------------------------ in a check's report


def report(draw, found):
    """What `check` says of exercise 01.1 with one case that `draw`s."""
    case = Case("one_token", observe=None, expected={"rows": [[0, 7]]}, draw=draw)
    item = Exercise("01.1", "labkit.engine.naive", "next_token", True, 15, 1, (case,), ())
    return findings.report(item, Finding("wrong", case=0, found=found), 5.0)


def test_a_wrong_part_is_drawn_and_the_table_stays():
    def draw(expected, found):
        return drawings.rows(expected["rows"], found["rows"], "token_ids")

    said = report(draw, {"rows": [[7, 0]]})
    story = "token_ids: row 0, column 0: 0 expected, 7 found; 2 cells differ."
    assert story in repr(said) and said.table.rows
    html = said._repr_html_()
    assert "<img src='data:image/png;base64," in html and f"alt='{story}'" in html
    assert html.index("<table") < html.index("<img")
    assert report(draw, {}).picture is None  # no such key
    assert report(draw, {"raised": "KeyError"}).picture is None


@pytest.mark.parametrize("error", [ValueError, ZeroDivisionError, RecursionError])
def test_a_draw_that_raises_leaves_the_table(error):
    def draw(expected, found):
        raise error("can't be drawn")

    said = report(draw, {"rows": [[7, 0]]})
    assert said.picture is None and said.table.rows
    assert "<img" not in said._repr_html_() and "can't be drawn" not in repr(said)
