"""What is shown while a stage lasts: on a terminal, and in a log."""

import io
import time

import pytest

from labkit import console
from labkit.console import SetupError, Stages


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_log_gets_a_line_at_the_start_and_one_with_the_seconds():
    out = io.StringIO()
    with Stages(2, out).stage("packages"):
        pass
    first, last = out.getvalue().splitlines()
    assert first == "[1/2] packages ..."
    assert last.startswith("[1/2] packages: done, ") and last.endswith(" s")


def test_a_log_tells_now_and_then_what_is_waited_for(monkeypatch):
    monkeypatch.setattr(console, "SPARSE_S", 0.0)
    out = io.StringIO()
    with Stages(1, out).stage("packages") as waiting:
        waiting("downloading torch (190 MB)")
        until(lambda: "torch" in out.getvalue())
    assert out.getvalue().count("downloading torch (190 MB)") == 1


def test_a_terminal_has_one_line_that_is_rewritten():
    out = Terminal()
    with Stages(1, out).stage("packages") as waiting:
        waiting("downloading torch (190 MB)")
        until(lambda: "torch" in out.getvalue())
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().split("\r")[-1].startswith("[1/1] packages: done, ")


def test_no_line_is_longer_than_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    out = Terminal()
    with Stages(1, out).stage("packages " * 20):
        pass
    assert max(map(len, out.getvalue().split("\r"))) <= 40


@pytest.mark.parametrize(
    "error, outcome", [(KeyboardInterrupt(), "interrupted"), (SetupError("a", "b", "c"), "failed")]
)
def test_a_stage_that_does_not_end_well_says_so_and_lets_the_error_through(error, outcome):
    out = io.StringIO()
    stages = Stages(1, out)
    with pytest.raises(BaseException) as raised, stages.stage("model"):
        raise error
    assert raised.value is error
    assert f"model: {outcome}, " in out.getvalue()
    assert stages.seconds == {}


def test_the_table_has_every_stage_and_the_sum():
    stages = Stages(2)
    stages.seconds = {"torch": 11.25, "the packages": 78.0}
    assert stages.table().splitlines() == [
        "  torch            11.2 s",
        "  the packages     78.0 s",
        "  in all           89.2 s",
    ]


def test_a_failure_is_what_why_and_one_command():
    lines = str(SetupError("torch can't be installed", "the disk is full", "df -h")).splitlines()
    assert lines == ["FAIL torch can't be installed", "     the disk is full", "     Try: df -h"]


def until(condition):
    """Waits for another thread; gives up after half a minute."""
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")
