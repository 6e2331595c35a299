"""Both languages say everything, with the same values filled in."""

import re
import string
from pathlib import Path

import pytest

import labkit.workbook
from labkit.workbook import catalogue, registry

KEYS = catalogue.keys()


def fields(sentence):
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


@pytest.mark.parametrize("key", KEYS)
def test_each_sentence_is_there_in_both_languages_with_the_same_values(key):
    entry = catalogue._entries()[key]
    assert set(entry) == set(catalogue.LANGUAGES)
    assert all(sentence.strip() for sentence in entry.values())
    assert fields(entry["en"]) == fields(entry["ko"])


@pytest.mark.parametrize("key", [key for key in KEYS if re.match(r"\d\d\.\d", key)])
def test_the_korean_of_an_exercise_is_korean(key):
    korean = catalogue._entries()[key]["ko"]
    assert re.search("[가-힣]", korean) or korean == catalogue._entries()[key]["en"]


def test_every_exercise_has_a_title_hints_and_a_sentence_for_each_case_and_mistake():
    for item in registry.exercises().values():
        wanted = ["title", "hint1", "hint2"]
        wanted += [f"case.{case.name}" for case in item.cases]
        wanted += [f"mistake.{mistake.name}" for mistake in item.mistakes]
        assert not [w for w in wanted if not catalogue.has(f"{item.id}.{w}")]


def test_no_sentence_of_an_exercise_is_left_over():
    wanted = set()
    for item in registry.exercises().values():
        wanted |= {f"{item.id}.{w}" for w in ("title", "hint1", "hint2", "hint3")}
        wanted |= {f"{item.id}.case.{case.name}" for case in item.cases}
        wanted |= {f"{item.id}.mistake.{mistake.name}" for mistake in item.mistakes}
    assert not [key for key in KEYS if re.match(r"\d\d\.\d", key) and key not in wanted]


def test_a_key_that_the_code_names_exists():
    """Keys are written as string literals; those put together are left out."""
    code = "\n".join(
        path.read_text(encoding="utf-8") for path in Path(labkit.workbook.__path__[0]).rglob("*.py")
    )
    named = re.findall(r'\b(?:text|PartError|say)\(\s*"([a-z_. ]+)"', code)
    assert len(named) > 20
    assert not [key for key in named if not catalogue.has(key)]
