import pytest

from labkit.engine.scheduler import Scheduler
from labkit.workbook.fakes_continuous import broken, talk

SCRIPTS = {"ann": "the sky is blue", "bob": "two and two make four"}


def test_everybody_hears_their_own_script():
    assert talk(Scheduler, SCRIPTS) == SCRIPTS


def test_an_abort_ends_one_and_is_not_noticed_by_the_other():
    assert talk(Scheduler, SCRIPTS, abort=(3, "ann")) == {**SCRIPTS, "ann": "the sky"}


def test_a_known_mistake_can_be_seen_to_fail():
    mixed_up = talk(broken("06.2", "abort_shifts_rows"), SCRIPTS, abort=(3, "ann"))
    assert mixed_up["bob"] == "two and is make four"
    ended = talk(broken("06.2", "aborted_gets_a_token"), SCRIPTS, abort=(3, "ann"))
    assert ended["bob"] == "the engine has ended: KeyError"


def test_an_unknown_mistake_is_refused():
    with pytest.raises(ValueError, match="unpack"):
        broken("06.2", "no such")
