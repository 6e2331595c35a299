"""Notebook 09, leaving a replica alone: `Breaker.allows`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake


def _told(*actions, **options):
    def observe(part):
        from labkit.workbook.fakes_fleet import breaker

        return breaker(part, actions, **options)

    return observe


def _said(**allowed):
    """`_said(at=[1, 2], allowed="TF")`."""
    return {"asked at": allowed["at"], "allowed": [one == "T" for one in allowed["allowed"]]}


def _draw(expected, found):
    return drawings.rows([expected["asked at"], expected["allowed"]],
                         [found["asked at"], found["allowed"]], "seconds, and allowed")  # fmt: skip


def _asks(*times):
    return [("asks", now) for now in times]


def _fails(*times):
    return [("fails", now) for now in times]


OPENS = _fails(10.0, 10.1, 10.2)  # three in a row; the cool-down is 1 s
ALLOWS = Exercise(
    id="09.4",
    module="labkit.fleet.breaker",
    symbol="Breaker.allows",
    core=False,
    minutes=15,
    difficulty=2,
    cases=(
        Case("closed", _told(*_asks(10.0, 10.0, 10.1)), _said(at=[10.0, 10.0, 10.1],
             allowed="TTT"), _draw),
        Case("two_failures", _told(*_fails(10.0, 10.1), *_asks(10.2)),
             _said(at=[10.2], allowed="T"), _draw),
        Case("open", _told(*OPENS, *_asks(10.2, 10.3, 11.1)),
             _said(at=[10.2, 10.3, 11.1], allowed="FFF"), _draw),
        Case("probe", _told(*OPENS, *_asks(11.3, 15.0)), _said(at=[11.3, 15.0], allowed="TF"),
             _draw),
        Case("exactly", _told(*_fails(10.0, 10.0, 10.0), *_asks(11.0)),
             _said(at=[11.0], allowed="T"), _draw),
        Case("one_probe", _told(*OPENS, *_asks(11.3, 11.3, 11.4, 99.0)),
             _said(at=[11.3, 11.3, 11.4, 99.0], allowed="TFFF"), _draw),
        Case("recovers", _told(*OPENS, *_asks(11.3), ("succeeds", 11.5), *_asks(11.5, 11.5)),
             _said(at=[11.3, 11.5, 11.5], allowed="TTT"), _draw),
        # the second cool-down is 2 s, from 11.5 on
        Case("longer", _told(*OPENS, *_asks(11.3), *_fails(11.5), *_asks(11.6, 12.6, 13.6)),
             _said(at=[11.3, 11.6, 12.6, 13.6], allowed="TFFT"), _draw),
        Case("longer_still", _told(*OPENS, *_asks(11.3), *_fails(11.5), *_asks(13.6),
             *_fails(13.8), *_asks(15.9, 17.9)),
             _said(at=[11.3, 13.6, 15.9, 17.9], allowed="TTFT"), _draw),
        Case("client_left", _told(*OPENS, *_asks(11.3, 11.4), ("leaves", 11.5), *_asks(11.6, 11.7)),
             _said(at=[11.3, 11.4, 11.6, 11.7], allowed="TFTF"), _draw),
        # requests while it is closed are no probes
        Case("opens_later", _told(*_asks(9.0, 9.1), *OPENS, *_asks(10.3, 11.3)),
             _said(at=[9.0, 9.1, 10.3, 11.3], allowed="TTFT"), _draw),
        # a clock may begin at 0
        Case("at_zero", _told(*_fails(0.0), *_asks(0.5, 1.0), failures=1),
             _said(at=[0.5, 1.0], allowed="FT"), _draw),
    ),
    mistakes=(
        Mistake("all_probe", (("    self.is_probing = True\n", ""),)),
        Mistake("closed_after", (
            ("    self.is_probing = True\n", "    self.opened_at = None\n"),
        )),
        Mistake("never_again", (
            ("self.is_probing or now < self.opened_at + self.cooldown_s", "True"),
        )),
        Mistake("no_cooldown", (
            ("self.is_probing or now < self.opened_at + self.cooldown_s", "self.is_probing"),
        )),
        Mistake("same_cooldown", (("+ self.cooldown_s", "+ self.shortest_s"),)),
        Mistake("a_duration", (("now < self.opened_at + self.cooldown_s",
                                "now < self.cooldown_s"),)),
        Mistake("zero_is_none", (("self.opened_at is None", "not self.opened_at"),)),
        Mistake("probes_when_closed", (
            ("    if self.opened_at is None:\n        return True",
             "    if self.opened_at is None:\n        self.is_probing = True\n        return True"),
        )),
    ),
)  # fmt: skip

EXERCISES = (ALLOWS,)
