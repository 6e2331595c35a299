"""`python3 -m labkit …`: what each command says, needs and runs."""

import ast
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import __main__ as entry
from labkit import bootstrap, commands, environment, lab, paths
from labkit.console import SetupError

ROOT = paths.repo_root()


@pytest.fixture
def ran(monkeypatch):
    """The commands don't set up and run nothing; they note what they would have run."""
    notes = []

    def ensure(extra=None, command="lab"):
        notes.append(("set up", extra, command))

    def inside(module, arguments):
        notes.append((module, *arguments))
        return 0

    monkeypatch.setattr(bootstrap, "ensure_environment", ensure)
    monkeypatch.setattr(commands, "inside", inside)
    return notes


def call(*argv):
    return commands.main(list(argv), entry.HELP)


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_help_names_every_command_there_is(argv, capsys):
    assert call(*argv) == 0
    told = capsys.readouterr().out
    for name in commands.COMMANDS:
        assert f"\n  {name} " in told


@pytest.mark.parametrize("name", ["lab", "test"])
def test_help_needs_no_environment(name):
    told = subprocess.run(
        [sys.executable, "-m", "labkit", name, "--help"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
    )
    assert told.returncode == 0, told.stderr
    assert "usage: " in told.stdout


def test_an_unknown_command_is_named_and_the_known_ones_are_told(capsys):
    assert call("laab") == 2
    told = capsys.readouterr().err
    assert "'laab'" in told and "lab " in told


def test_test_runs_everything_when_nothing_is_named(ran):
    call("test")
    assert ran[0] == ("set up", "test", "test")
    assert ran[1][:4] == ("pytest", "tests", "notebooks", "solutions")
    assert "--nbval" in ran[1]


def test_test_hands_its_arguments_to_pytest_as_they_are(ran):
    call("test", "tests/test_cli.py", "-k", "a or b", "-x")
    assert ran[1] == ("pytest", "tests/test_cli.py", "-k", "a or b", "-x")
    assert ran[0][2] == "test tests/test_cli.py -k 'a or b' -x"


def test_tests_run_in_a_scratch_folder_in_english_and_draw_no_window(monkeypatch, ran):
    seen = {}
    monkeypatch.setenv("LABKIT_MY", "the-learners-own")
    monkeypatch.setenv("LABKIT_LANG", "ko")
    monkeypatch.delenv("MPLBACKEND")
    monkeypatch.setattr(commands, "inside", lambda *_: seen.update(os.environ) or 0)
    call("test")
    assert seen["LABKIT_MY"] != "the-learners-own"
    assert not Path(seen["LABKIT_MY"]).exists()
    assert seen["MPLBACKEND"] == "agg"
    assert "LABKIT_LANG" not in seen


def test_lab_looks_at_its_options_before_it_sets_up(ran):
    with pytest.raises(SystemExit):
        call("lab", "--prot", "9000")
    assert ran == []


def test_lab_sets_up_and_then_opens(ran):
    call("lab", "01", "--no-browser", "--lang", "ko")
    line = ["01", "--no-browser", "--lang", "ko"]
    assert ran == [("set up", None, " ".join(["lab", *line])), ("labkit.lab", *line)]


def test_a_failed_stage_ends_with_its_remedy(monkeypatch, capsys):
    def fail(*_, **__):
        raise SetupError("torch can't be installed", "the disk is full", "python3 -m labkit lab")

    monkeypatch.setattr(bootstrap, "ensure_environment", fail)
    assert call("lab") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "     Try: python3 -m labkit lab"


def test_ctrl_c_tells_how_to_go_on(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(bootstrap, "ensure_environment", interrupt)
    assert call("lab", "--port", "9000") == 130
    assert "-m labkit lab --port 9000" in capsys.readouterr().out


def test_doctor_works_without_an_environment(monkeypatch, ran):
    doctor = pytest.importorskip("labkit.doctor")
    monkeypatch.setattr(environment, "works", lambda python: False)
    monkeypatch.setattr(doctor, "main", lambda arguments: 7)
    assert call("doctor", "--json") == 7
    assert ran == []


def test_doctor_runs_inside_the_environment_when_there_is_one(monkeypatch, ran):
    monkeypatch.setattr(environment, "works", lambda python: True)
    call("doctor", "--json")
    assert ran == [("labkit.doctor", "--json")]


def test_the_status_of_what_ran_inside_is_handed_on(monkeypatch):
    monkeypatch.setattr(environment, "venv_python", lambda: Path(sys.executable))
    assert environment.inside("-c", ["import sys; sys.exit(5)"]) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="the setting is of Linux' malloc")
@pytest.mark.parametrize("chosen, found", [(None, "glibc.malloc.hugetlb=1"), ("x", "x")])
def test_what_runs_inside_gets_large_pages_unless_told_otherwise(monkeypatch, chosen, found):
    monkeypatch.setattr(environment, "venv_python", lambda: sys.executable)
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if chosen:
        monkeypatch.setenv("GLIBC_TUNABLES", chosen)
    code = f"import os, sys; sys.exit(os.environ['GLIBC_TUNABLES'] != {found!r})"
    assert environment.inside("-c", [code]) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_what_runs_inside_is_stopped_with_its_parent(monkeypatch):
    kept = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(environment, "venv_python", lambda: Path(sys.executable))
    code = f"import os, signal, time; os.kill({os.getpid()}, signal.SIGTERM); time.sleep(60)"
    assert environment.inside("-c", [code]) == -signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == kept


def test_an_old_python_is_refused_and_a_newer_one_named(monkeypatch, capsys):
    monkeypatch.setattr(entry.sys, "version_info", (3, 9, 18, "final", 0))
    monkeypatch.setattr(entry.shutil, "which", lambda name: name == "python3.12" or None)
    assert entry.main(["test", "-x"]) == 1
    told = capsys.readouterr().err
    assert "Python 3.9" in told and "3.11 or newer" in told
    assert "Try: python3.12 -m labkit test -x" in told


@pytest.mark.parametrize("file", ["__init__.py", "__main__.py"])
def test_an_old_python_can_read_so_far(file):
    ast.parse((ROOT / "labkit" / file).read_text(encoding="utf-8"), feature_version=(3, 4))


def test_a_port_that_is_taken_is_refused_by_name():
    with socket.socket() as other, pytest.raises(SetupError, match="port ") as failed:
        other.bind((lab.HOST, 0))
        other.listen()
        lab.main(["--port", str(other.getsockname()[1])])
    assert failed.value.command.endswith("labkit lab")


def test_without_a_port_the_next_free_one_is_taken(monkeypatch):
    monkeypatch.setattr(lab, "is_free", lambda port: port == lab.FIRST_PORT + 2)
    assert lab.choose_port(None) == lab.FIRST_PORT + 2


def test_a_notebook_is_found_by_its_number_in_either_language(tmp_path):
    for name in ("00_start_here.ipynb", "ko/00_start_here.ipynb", "01_streaming.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert lab.find_notebook(tmp_path, "00", "en") == "00_start_here.ipynb"
    assert lab.find_notebook(tmp_path, "00", "ko") == "ko/00_start_here.ipynb"
    assert lab.find_notebook(tmp_path, "01", "ko") is None


def test_no_text_browser_takes_the_terminal(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert lab.browser() is None


def test_the_help_of_every_command_is_told_without_a_set_up(ran, capsys):
    with pytest.raises(SystemExit) as ended:
        call("notebooks", "--help")
    assert ended.value.code == 0
    assert "stamp" in capsys.readouterr().out
    assert ran == []


@pytest.mark.parametrize("port", ["0", "99999", "-1", "x"])
def test_a_port_that_there_is_not_is_refused_with_the_range(port, ran, capsys):
    with pytest.raises(SystemExit) as ended:
        call("lab", f"--port={port}")
    assert ended.value.code == 2
    assert "choose one from 1 to 65535" in capsys.readouterr().err
