"""Minutes of the three routes come from the sources and the registry."""

from dataclasses import replace

import pytest

from labkit.paths import repo_root
from labkit.workbook.registry import exercises
from labkit.workbook.routes import minutes, routes

CORE = replace(next(iter(exercises().values())), id="07.1", core=True, minutes=10)
FURTHER = replace(CORE, id="07.2", core=False, minutes=30)
ELSEWHERE = replace(CORE, id="08.1")


def test_each_route_adds_its_exercises_to_the_reading(tmp_path):
    source = tmp_path / "07_x.py"
    source.write_text("# %% [markdown]\n# a\n\n# %% header minutes=15\n", encoding="utf-8")
    assert minutes(source, [CORE, FURTHER, ELSEWHERE]) == (15, 25, 55)
    assert minutes(source, [FURTHER, ELSEWHERE]) == (15, 0, 45)  # beside the core route
    assert minutes(source, [ELSEWHERE]) == (15, 15, 15)  # only read


def test_a_source_without_minutes_is_named(tmp_path):
    source = tmp_path / "07_x.py"
    source.write_text("# %% header\n", encoding="utf-8")
    with pytest.raises(ValueError, match="07_x.py"):
        minutes(source, [])


def test_the_table_names_the_notebooks_that_there_are_and_ends_with_the_sums():
    *rows, last = routes().table.rows
    sources = sorted((repo_root() / "notebooks" / "source").glob("*.py"))
    assert [row[0] for row in rows] == [source.stem for source in sources]
    assert last[1:] == [str(sum(int(row[n]) for row in rows)) for n in (1, 2, 3)]
