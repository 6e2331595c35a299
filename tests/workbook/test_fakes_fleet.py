"""Stories that checks of notebook 09 play: whatever a part does, they end and tell of it."""

import pytest

from labkit.workbook import fakes_fleet, registry, worker
from labkit.workbook.parts import Hole

ASKS = [("asks", "ann", "a"), ("loaded", "a")]


def with_part(body: str):
    hole = Hole.of(registry.get("09.2"))
    return worker.spliced(hole, f"async def acquire(self, name: str) -> Entry:\n    {body}\n")


def test_a_part_that_waits_for_ever_is_left_waiting():
    found = fakes_fleet.acquired(with_part("await asyncio.Event().wait()"), ASKS)
    assert found["callers"] == {"ann": ["waits", "waits"]}
    assert found["loader"] == ["nobody loads a"]


def test_a_part_that_turns_and_turns_is_left_turning():
    body = "while True:\n        await asyncio.sleep(0)"
    assert fakes_fleet.acquired(with_part(body), ASKS)["callers"] == {"ann": ["waits", "waits"]}


def test_a_part_that_disobeys_a_cancellation_is_left_behind():
    body = "while True:\n        try:\n            await asyncio.sleep(0)\n"
    body += "        except asyncio.CancelledError:\n            pass"
    found = fakes_fleet.acquired(with_part(body), [ASKS[0], ("cancelled", "ann")])
    assert found["callers"] == {"ann": ["waits", "waits"]}


def test_an_error_of_the_part_itself_is_raised():
    with pytest.raises(KeyError):
        fakes_fleet.acquired(with_part("return self.shelf.entries[name]"), ASKS)


def test_a_replica_that_is_lost_gets_nothing_and_nobody_is_told():
    from labkit.fleet import routing

    actions = [("sends", "q", 5, "s"), ("lost", "r0"), ("sends", "p", 5, "s")]
    found = fakes_fleet.routed(routing, routing.RoundRobin(), actions, [routing.Replica("r0")])
    assert found == {"r0": ["q"], "nowhere": ["p"]}
