"""The commands of the workbook, as a learner meets them, in plain Python."""

import json

import pytest

from labkit.workbook import catalogue, parts, registry, session
from labkit.workbook.parts import Hole

ITEM = registry.get("00.1")
HOLE = Hole.of(ITEM)
TOTAL = len(registry.exercises())


@pytest.fixture(autouse=True)
def my(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_MY", str(tmp_path / "my 한글"))
    monkeypatch.setattr(session, "_cells", {})
    monkeypatch.setattr(session, "_reset_at", {})
    monkeypatch.setattr(catalogue, "_notebook_language", "en")
    return tmp_path / "my 한글"


def write(text):
    """As if the exercise cell with this text had been run."""
    session._cells["00.1"] = text


def test_a_passed_part_is_saved_and_counted_and_used(my, capsys):
    write(HOLE.reference)
    assert session.check("00.1").outcome == "passed"
    assert (my / "parts" / "00.1.py").read_text(encoding="utf-8") == HOLE.reference + "\n"
    assert repr(session.progress()).startswith(f"ⓘ 1 of {TOTAL} exercises passed")
    assert session.use("00.1")(4, 80, 2, 10) == (8.0, "memory")
    assert "Running on your `step_time` (exercise 00.1)" in capsys.readouterr().out


def test_what_has_not_passed_is_taken_from_labkit_under_a_banner(capsys):
    assert session.use("00.1")(4, 80, 2, 10) == (8.0, "memory")
    assert "Running on labkit's `step_time`" in capsys.readouterr().out


def test_a_wrong_part_is_not_saved_and_an_earlier_right_one_stays(my):
    write(HOLE.reference)
    session.check("00.1")
    write(ITEM.mistakes[0].apply(HOLE.reference))
    assert session.check("00.1").outcome == "wrong"
    assert (my / "parts" / "00.1.py").read_text(encoding="utf-8") == HOLE.reference + "\n"
    assert json.loads((my / "progress.json").read_text(encoding="utf-8")) == {
        "00.1": {"attempts": 2, "outcome": "wrong"}
    }


def test_the_learners_own_code_runs_and_not_a_copy_of_labkits():
    text = HOLE.reference.replace("compute_time", "mine")
    write(text)
    session.check("00.1")
    assert "mine" in session.use("00.1").__code__.co_varnames


def test_a_part_whose_signature_changed_since_falls_back_and_says_so(capsys):
    parts.save_part("00.1", "def step_time(flops):\n    return 1")
    assert session.use("00.1")(4, 80, 2, 10) == (8.0, "memory")
    said = capsys.readouterr().out
    assert "no longer fits" in said
    assert "def step_time(flops)" in said
    assert "step_time" in said


def test_a_damaged_part_file_falls_back_and_says_so(my, capsys):
    parts.save_part("00.1", "def step_time(")
    assert session.use("00.1")(4, 80, 2, 10) == (8.0, "memory")
    assert "no longer fits" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["nonlocal x", "exit()"])
def test_a_part_with_which_its_module_cannot_be_executed_falls_back_and_says_so(line, capsys):
    parts.save_part("00.1", f"{mark(line)}{HOLE.blank.replace('...', line)}")
    assert session.use("00.1")(4, 80, 2, 10) == (8.0, "memory")
    assert "no longer fits" in capsys.readouterr().out


def mark(line):
    """`exit()` is run as the module is: in a decorator."""
    return "@exit()\n" if line == "exit()" else ""


def test_settings_nested_too_deep_are_no_reason_to_fail(my):
    my.mkdir()
    (my / "settings.json").write_text("[" * 100_000, encoding="utf-8")
    assert session.start("00")


def test_hints_go_from_invariant_to_sketch_to_where_the_solution_is():
    said = [repr(session.hint("00.1")) for _ in range(3)]
    assert "Hint 1 of 2" in said[0]
    assert "The invariant" in said[0]
    assert "Hint 2 of 2" in said[1]
    assert 'solution("00.1")' in said[2]


def test_solution_is_the_text_of_labkit():
    assert session.solution("00.1").code == HOLE.reference


def test_reset_keeps_the_passed_part_in_a_backup_and_begins_anew(my):
    for _ in range(2):  # twice within a second: two backups
        write(HOLE.reference)
        session.check("00.1")
        said = repr(session.reset("00.1"))
        assert "your code here" in said
    backups = list((my / "backups").iterdir())
    assert [b.read_text(encoding="utf-8") for b in backups] == [HOLE.reference + "\n"] * 2
    assert session.check("00.1").outcome == "not attempted"
    assert f"0 of {TOTAL}" in repr(session.progress())
    assert "no passed part" in repr(session.reset("00.1"))


@pytest.mark.parametrize("command", ["check", "hint", "solution", "reset"])
@pytest.mark.parametrize("wrong", ["99.9", "", 1.2, None, [], {}])
def test_an_unknown_exercise_is_told_and_nothing_raises(command, wrong):
    assert "There are: 00.1, 01.1" in repr(getattr(session, command)(wrong))


def test_damaged_notes_are_no_reason_to_fail(my):
    my.mkdir()
    (my / "progress.json").write_text("[", encoding="utf-8")
    (my / "settings.json").write_text("[]", encoding="utf-8")
    assert session.start("00") and session.progress()
    odd = {"00.1": 5, "01.1": {"attempts": "x", "hints": -9, "outcome": "odd"}, "01.2": None}
    (my / "progress.json").write_text(json.dumps(odd), encoding="utf-8")
    assert session.hint("01.1") and session.progress()
    write(HOLE.reference)
    assert session.check("00.1").outcome == "passed"
    assert f"1 of {TOTAL}" in repr(session.progress())


def test_the_decorator_remembers_the_text_and_leaves_the_function_alone():
    @session.exercise("00.1", "step_time")
    def step_time(num_flops, num_bytes, peak_flops, bandwidth):
        return num_flops / peak_flops, "compute"

    assert step_time(4, 0, 2, 1) == (2.0, "compute")
    assert "def step_time" in session._cells["00.1"]


# ---- languages


def test_the_language_is_that_of_the_notebook_until_one_is_chosen(monkeypatch):
    session.start("00", language="ko")
    assert "아직 시도하지 않았습니다" in repr(session.check("00.1"))
    session.language("en")
    assert "Not attempted" in repr(session.check("00.1"))
    monkeypatch.setenv("LABKIT_LANG", "ko")
    assert "아직 시도하지 않았습니다" in repr(session.check("00.1"))


def test_a_language_that_there_is_not_is_told():
    assert '"en" or "ko"' in repr(session.language("fr"))


def test_solutions_keep_nothing(my):
    session.start("00", keep=False)
    write(HOLE.reference)
    session.check("00.1")
    assert not my.exists()


# ---- what is kept on disk may be in the way


def test_a_folder_that_cannot_be_written_is_told_and_nothing_raises(tmp_path, monkeypatch):
    (tmp_path / "a file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("LABKIT_MY", str(tmp_path / "a file"))
    write(HOLE.reference)
    for result in (session.check("00.1"), session.hint("00.1"), session.language("ko")):
        assert "a file" in repr(result)
        assert "Your part is saved" not in repr(result)
    assert session.check("00.1").outcome == "passed"
    assert session.reset("00.1") and session.progress()
    assert session.use("00.1")(4, 80, 2, 10) == (8.0, "memory")


def test_a_folder_where_a_part_should_be_falls_back_on_the_reference(my, capsys):
    parts.part_path("00.1").mkdir(parents=True)
    assert session.use("00.1")(4, 80, 2, 10) == (8.0, "memory")
    assert "no longer fits" in capsys.readouterr().out


@pytest.mark.parametrize("seconds", [0, -1, None, "5", float("nan"), float("inf"), 601])
def test_a_time_limit_that_is_none_is_refused_with_the_value(seconds):
    write(HOLE.reference)
    assert repr(seconds) in repr(session.check("00.1", seconds=seconds))


def test_null_bytes_in_a_cell_are_told():
    write("def step_time():\n    x = '\x00'")
    assert session.check("00.1").outcome == "crashed"


def test_a_saved_part_is_without_the_mark_of_the_exercise(my):
    write('@exercise("00.1", "step_time")\n' + HOLE.reference)
    assert session.check("00.1").outcome == "passed"
    assert (my / "parts" / "00.1.py").read_text(encoding="utf-8") == HOLE.reference + "\n"
