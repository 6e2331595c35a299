"""Notebook 08, two policies: `Fair._join` and `EarliestDeadline.refuse`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake


def _turns(*actions):
    def observe(part):
        from labkit.workbook.fakes_priorities import served_in_turn

        return served_in_turn(part.Fair(), actions)

    return observe


def _came(names, **counters):
    return {"served": [{name: 1} for name in names.split()], "counters": counters}


def _draw(expected, found):
    return drawings.schedule(expected["served"], found["served"])


def _comes(*names):
    """Requests a1, a2, b1, …: the letter is the tenant."""
    return [("comes", name, name[0]) for name in names]


# Each served request is charged so many prompt tokens.
AWAY = [*_comes("b1"), ("serve", 10), ("ends", "b1")]  # b has had 10, and leaves
JOIN = Exercise(
    id="08.4",
    module="labkit.engine.policies.fair",
    symbol="Fair._join",
    core=False,
    minutes=25,
    difficulty=2,
    cases=(
        Case("alone", _turns(*_comes("a1"), ("serve", 10)), _came("a1", a=10.0), _draw),
        Case(
            "newcomer",
            _turns(*_comes("a1", "a2"), ("serve", 40), *_comes("b1"), ("serve", 1), ("serve", 2)),
            _came("a1 a2 b1", a=41.0, b=42.0),
            _draw,
        ),
        # a begins at 10, where b has left, and is at 100 as b returns
        Case(
            "credit",
            _turns(
                *AWAY, *_comes("a1", "a2", "a3", "a4"), ("serve", 90), *_comes("b2", "b3", "b4"),
                *[("serve", 10)] * 6,
            ),
            _came("b1 a1 a2 b2 a3 b3 a4 b4", a=130.0, b=130.0),
            _draw,
        ),
        Case(
            "smallest",
            _turns(
                *AWAY, *_comes("a1", "a2", "c1", "c2"), ("serve", 90), ("serve", 30),
                *_comes("b2"), *[("serve", 5)] * 3,
            ),
            _came("b1 a1 c1 c2 b2 a2", a=105.0, b=45.0, c=45.0),
            _draw,
        ),
        Case(
            "owes",
            _turns(
                *_comes("a1", "b1", "a2", "a3"), ("serve", 10), ("serve", 200), *_comes("b2"),
                *[("serve", 5)] * 3,
            ),
            _came("a1 b1 a2 a3 b2", a=20.0, b=205.0),
            _draw,
        ),
        Case(
            "empty_line",
            _turns(*_comes("a1"), ("serve", 80), ("ends", "a1"), *_comes("b1"), ("serve", 1)),
            _came("a1 b1", a=80.0, b=81.0),
            _draw,
        ),
        # a1 was preempted: a has had 10 and was never away, b has had more
        Case(
            "victim",
            _turns(
                *_comes("a1"), ("serve", 10), *_comes("b1", "b2", "b3"), ("serve", 90),
                ("serve", 0), ("preempted", "a1"), ("serve", 0), ("serve", 1),
            ),
            _came("a1 b1 b2 a1 b3", a=10.0, b=101.0),
            _draw,
        ),
        Case(
            "comes_and_goes",
            _turns(
                *_comes("a1"), ("serve", 1), *_comes("a2"), ("serve", 1), *_comes("b1", "a3"),
                *[("serve", 1)] * 2, *_comes("a4", "b2"), *[("serve", 1)] * 2,
            ),
            _came("a1 a2 b1 a3 a4 b2", a=4.0, b=4.0),
            _draw,
        ),
    ),
    mistakes=(
        Mistake("no_lift", (("max(counter, self._floor())", "counter"),)),
        Mistake("to_the_largest", (
            ("max(counter, self._floor())", "max(self.counters.values(), default=counter)"),
        )),
        Mistake("min_for_max", (("max(counter", "min(counter"),)),
        Mistake("debt_forgiven", (("max(counter, self._floor())", "self._floor()"),)),
        Mistake("twice_in_heap", (("if tenant not in self.in_least:", "if True:"),)),
        Mistake("victim_lifted", (("if not had_its_turn:", "if True:"),)),
    ),
)  # fmt: skip


def _ask(deadline, now, seconds, arrival=None):
    def observe(part):
        from labkit.engine.request import Request

        came = now if arrival is None else arrival
        request = Request("r", [1, 2, 3], max_tokens=5, arrival=came, deadline=deadline)
        return {"refused because": part.EarliestDeadline().refuse(request, now, lambda r: seconds)}

    return observe


def _because(why):
    return {"refused because": why}


def _passed(late):
    return _because(
        f"request 'r': its deadline passed {late} s ago; it is a time on the engine's clock, not "
        "a duration"
    )


def _out_of_reach(needed, left):
    return _because(
        "request 'r' can't meet its deadline: 3 prompt tokens and 5 output tokens take about "
        f"{needed} s, {left} s are left; ask for fewer tokens or give it more time"
    )


REFUSE = Exercise(
    id="08.5",
    module="labkit.engine.policies.deadline",
    symbol="EarliestDeadline.refuse",
    core=False,
    minutes=10,
    difficulty=1,
    cases=(
        Case("no_deadline", _ask(None, 100.0, 3.0), _because(None)),
        Case("in_time", _ask(105.0, 100.0, 3.0), _because(None)),
        Case("too_long", _ask(102.0, 100.0, 3.0), _out_of_reach("3.000", "2.000")),
        Case("too_long", _ask(100.5, 100.0, 3.0), _out_of_reach("3.000", "0.500")),
        Case("exactly", _ask(103.0, 100.0, 3.0), _because(None)),
        Case("passed", _ask(99.5, 100.0, 0.0), _passed("0.500")),
        Case("passed", _ask(2.0, 100.0, 1.0), _passed("98.000")),
        Case("waited", _ask(105.0, 103.0, 3.0, arrival=100.0), _out_of_reach("3.000", "2.000")),
        Case("at_zero", _ask(0.0, -1.0, 3.0), _out_of_reach("3.000", "1.000")),
        Case("nothing_left", _ask(100.0, 100.0, 0.0), _because(None)),
    ),
    mistakes=(
        Mistake("a_duration", (("request.deadline - now", "request.deadline"),)),
        Mistake("since_arrival", (("deadline - now", "deadline - request.arrival"),)),
        Mistake("on_time_refused", (("if needed > left", "if needed >= left"),)),
        Mistake("estimate_ignored", ((
            "out_of_reach(request, needed, left) if needed > left else None", "None"
        ),)),
        Mistake("zero_is_none", (("request.deadline is None", "not request.deadline"),)),
        Mistake("wrong_words", (("if left < 0:", "if left < -1e15:"),)),
    ),
)  # fmt: skip

EXERCISES = (JOIN, REFUSE)
