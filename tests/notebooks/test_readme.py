"""README's table of notebooks: all of them, with the minutes that the sources and exercises say."""

import re

from labkit.paths import repo_root
from labkit.workbook.registry import exercises
from labkit.workbook.routes import minutes

SOURCES = sorted((repo_root() / "notebooks" / "source").glob("*.py"))
README = (repo_root() / "README.md").read_text(encoding="utf-8")
ROW = r"^\| \[(\d\d) [^]]+\]\(solutions/(\w+)\.ipynb\) \|.*" + 3 * r"\| (\d+) min " + r"\|$"


def rows() -> dict[str, tuple[int, ...]]:
    found = re.findall(ROW, README, re.MULTILINE)
    assert [number for number, *_ in found] == [name[:2] for _, name, *_ in found]
    return {name: tuple(map(int, numbers)) for _, name, *numbers in found}


def test_the_table_has_every_notebook_and_its_minutes():
    told = {source.stem: minutes(source, exercises().values()) for source in SOURCES}
    assert rows() == told


def test_the_sums_are_those_of_the_rows():
    sums = [sum(column) / 60 for column in zip(*rows().values(), strict=True)]
    assert f"| together | | | | {' | '.join(f'{hours:.1f} h' for hours in sums)} |" in README
