"""Every exercise tells right from wrong: by hand-written mistakes, by mutants, by other answers."""

import ast
import runpy
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from mutants import mutants

from labkit.workbook import catalogue, checker, findings, registry, worker
from labkit.workbook.parts import Hole

ANSWERS = Path(__file__).parent / "answers"
EXERCISES = registry.exercises()
each_exercise = pytest.mark.parametrize("item", EXERCISES.values(), ids=EXERCISES)
DRAWN = {name: i for name, i in EXERCISES.items() if any(case.draw for case in i.cases)}
each_drawn_exercise = pytest.mark.parametrize("item", DRAWN.values(), ids=DRAWN)
each_mistake = pytest.mark.parametrize(
    ("item", "mistake"),
    [
        pytest.param(item, mistake, id=f"{item.id}-{mistake.name}")
        for item in EXERCISES.values()
        for mistake in item.mistakes
    ],
)

# Each of `equivalent/NN.py` has EQUIVALENT, mutants that do the same as the reference, (exercise,
# damage) -> why nothing can notice; and may have ENDLESS, a set of those that never end.
LISTED = [runpy.run_path(str(p)) for p in sorted((ANSWERS.parent / "equivalent").glob("*.py"))]
EQUIVALENT = {key: why for file in LISTED for key, why in file["EQUIVALENT"].items()}
ENDLESS = {key for file in LISTED for key in file.get("ENDLESS", ())}


OWN = threading.local()  # a worker process of each thread
TWO_AT_A_TIME = ThreadPoolExecutor(2)


def finding(item, text, seconds=5.0):
    return checker.check_cell(item, text, seconds)


def finding_beside_others(item, text):
    if not hasattr(OWN, "worker"):
        OWN.worker = checker.Worker()
    return checker.check_cell(item, text, 5.0, OWN.worker)


@cache
def finding_of_mistake(exercise_id, number):
    item = EXERCISES[exercise_id]
    return finding(item, item.mistakes[number].apply(Hole.of(item).reference))


@each_exercise
def test_the_reference_passes(item):
    assert finding(item, Hole.of(item).reference).outcome == "passed"


@each_exercise
def test_the_blank_cell_is_not_attempted(item):
    assert finding(item, Hole.of(item).blank).outcome == "not attempted"


@each_exercise
def test_a_part_that_raises_is_crashed_and_its_traceback_is_shown(item):
    header, _, _ = Hole.of(item).blank.rpartition("...")
    found = finding(item, header + 'raise RuntimeError("boom")')
    assert found.outcome == "crashed"
    assert "RuntimeError: boom" in found.error


@each_exercise
def test_an_endless_loop_is_wrong_and_its_line_is_named(item):
    header, _, _ = Hole.of(item).blank.rpartition("...")
    found = finding(item, header + "turns = 0\n    while True:\n        turns += 1", seconds=1.0)
    assert found.outcome == "wrong"
    assert found.endless
    assert found.line in ("while True:", "turns += 1")


@each_exercise
def test_a_syntax_error_is_crashed_and_its_line_is_named(item):
    found = finding(item, Hole.of(item).blank.replace("...", "x = = 1"))
    assert found.outcome == "crashed"
    assert found.reason == "check.syntax"
    assert found.values["line"] == len(Hole.of(item).blank.splitlines())


@each_exercise
def test_there_are_at_least_three_known_mistakes(item):
    assert len(item.mistakes) >= 3


@each_mistake
def test_a_known_mistake_is_wrong_and_named(item, mistake):
    found = finding_of_mistake(item.id, item.mistakes.index(mistake))
    said = repr(findings.report(item, found, 5.0))
    assert found.outcome == "wrong"
    assert found.mistake == mistake.name
    assert catalogue.text(f"{item.id}.mistake.{mistake.name}") in said


@each_drawn_exercise
def test_known_mistakes_are_drawn_where_their_case_has_a_picture(item):
    drawn = []
    for number, mistake in enumerate(item.mistakes):
        found = finding_of_mistake(item.id, number)
        case = item.cases[found.case]
        if case.draw is None or not isinstance(found.found, dict) or "raised" in found.found:
            continue
        picture = findings.report(item, found, 5.0).picture
        assert picture is not None, f"{mistake.name}: `draw` of {case.name} raised"
        assert picture.story, mistake.name
        assert picture._repr_png_()[0].startswith(b"\x89PNG")
        drawn.append(mistake.name)
    assert drawn, "cases have pictures, and no known mistake is drawn"


@each_exercise
def test_three_known_mistakes_are_right_somewhere(item):
    """A mistake that is wrong everywhere teaches little; people make those that seem to work."""
    hole = Hole.of(item)
    plausible = []
    for mistake in item.mistakes:
        module = worker.spliced(hole, mistake.apply(hole.reference))
        for case in item.cases:
            found, _ = worker.attempt(case, module)
            if worker.same(found, worker.plain(case.expected)):
                plausible.append(mistake.name)
                break
    assert len(plausible) >= 3, plausible


@each_exercise
def test_mutants_do_not_pass(item):
    survivors = {}
    listed = {damage for exercise, damage in [*EQUIVALENT, *ENDLESS] if exercise == item.id}
    damages = list(mutants(Hole.of(item).reference))
    judged = {damage: text for damage, text in damages if damage not in listed}
    found = TWO_AT_A_TIME.map(lambda text: finding_beside_others(item, text), judged.values())
    for (damage, text), one in zip(judged.items(), found, strict=True):
        # One that runs out of time, and is not known to loop for ever, has not been judged.
        if one.outcome == "passed" or one.endless:
            survivors[damage] = text
    assert not survivors, survivors
    assert listed <= {damage for damage, _ in damages}, "a listed mutant no longer exists"
    assert len(damages) >= 5


@each_exercise
def test_other_right_answers_pass(item):
    """Two answers to each exercise, written from its docstring without seeing labkit."""
    answers = sorted(ANSWERS.glob(f"{item.id}-*.py"))
    assert len(answers) >= 2
    for answer in answers:
        text = answer.read_text(encoding="utf-8")
        assert text != Hole.of(item).reference
        found = finding(item, text)
        assert found.outcome == "passed", f"{answer.name}: {findings.report(item, found, 5.0)}"


@each_exercise
def test_an_exercise_has_5_to_25_lines_beside_its_docstring(item):
    function = ast.parse(Hole.of(item).reference).body[0]
    docstring = function.body[0]
    assert ast.get_docstring(function)
    lines = len(Hole.of(item).reference.splitlines())
    assert 5 <= lines - (docstring.end_lineno - docstring.lineno + 1) <= 25


def test_at_most_two_exercises_of_a_notebook_are_core():
    notebooks = {item.notebook for item in EXERCISES.values()}
    for notebook in notebooks:
        core = [i.id for i in EXERCISES.values() if i.notebook == notebook and i.core]
        assert len(core) <= 2
