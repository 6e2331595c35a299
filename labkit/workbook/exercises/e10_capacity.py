"""Notebook 10, the search for a server's capacity: `capacity`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake

MOST = 200  # trials; more than any search needs


class Endless(Exception):
    """A search that goes on after so many trials."""


def _search(holds, low, high, tolerance=0.25):
    """A server that meets its SLO up to `holds` requests a second, and writes down each trial."""

    def observe(part):
        asked = []

        def meets(rate):
            asked.append(rate)
            if len(asked) > MOST:
                raise Endless(f"{MOST} trials, and the search goes on")
            return rate <= holds

        try:
            found = part.capacity(meets, low, high, tolerance)
        except ValueError:
            return {"raised": "ValueError", "tried": asked}
        return {
            "rate": found.rate,
            "fails at": found.fails_at,
            "tried": asked,
            "trials": [[trial.rate, trial.is_met] for trial in found.trials],
        }

    return observe


def _draw(expected, found):
    return drawings.rows(_rows(expected), _rows(found), "loads tried, met or not, and the answer")


def _rows(found):
    return [found["tried"], [is_met for _, is_met in found["trials"]],
            [found["rate"], found["fails at"]]]


def _found(rate, fails_at, *trials):
    """`trials` are rates; those that failed are given as negative numbers."""
    return {
        "rate": rate,
        "fails at": fails_at,
        "tried": [abs(rate) for rate in trials],
        "trials": [[abs(rate), rate > 0] for rate in trials],
    }


ROOT = 2**0.5
CAPACITY = Exercise(
    id="10.2",
    module="labkit.measure.capacity",
    symbol="capacity",
    core=True,
    minutes=20,
    difficulty=2,
    cases=(
        Case("low_fails", _search(0.5, 1.0, 64.0), _found(0.0, 1.0, -1.0), _draw),
        Case("high_meets", _search(100.0, 1.0, 4.0), _found(4.0, None, 1.0, 2.0, 4.0), _draw),
        Case(
            "closer",
            _search(5.0, 1.0, 64.0, 0.2),
            _found(
                4 * 2**0.25, 4 * ROOT, 1.0, 2.0, 4.0, -8.0, -4 * ROOT, 4 * 2**0.25
            ),
            _draw,
        ),
        Case(
            "between",
            _search(5.0, 1.0, 64.0, 0.5),
            _found(4.0, 4 * ROOT, 1.0, 2.0, 4.0, -8.0, -4 * ROOT),
            _draw,
        ),
        Case(
            "not_beyond_high",
            _search(100.0, 1.0, 6.0),
            _found(6.0, None, 1.0, 2.0, 4.0, 6.0),
            _draw,
        ),
        Case(
            "below_high",
            _search(5.0, 1.0, 6.0, 0.25),
            _found(24**0.5, 6.0, 1.0, 2.0, 4.0, -6.0, 24**0.5),
            _draw,
        ),
        Case("only_one", _search(5.0, 4.0, 4.0), _found(4.0, None, 4.0), _draw),
        Case(
            "exactly",
            _search(0.02, 0.01, 0.64, 0.5),
            _found(0.02, 0.02 * ROOT, 0.01, 0.02, -0.04, -0.02 * ROOT),
            _draw,
        ),
        Case(
            "exactly_within",
            _search(1.5, 1.0, 64.0, 1.0),
            _found(1.0, 2.0, 1.0, -2.0),
            _draw,
        ),
        Case("no_range", _search(5.0, 4.0, 2.0), {"raised": "ValueError", "tried": []}),
        Case("from_zero", _search(5.0, 0.0, 4.0), {"raised": "ValueError", "tried": []}),
        Case("no_tolerance", _search(5.0, 1.0, 8.0, 0.0), {"raised": "ValueError", "tried": []}),
    ),
    mistakes=(
        Mistake("arithmetic_mean", (("math.sqrt(good * bad)", "(good + bad) / 2"),)),
        Mistake("beyond_high", (("min(2 * rate, high)", "2 * rate"),)),
        Mistake("first_that_failed", (
            ("return Capacity(good, bad, ", "return Capacity(bad, good, "),
        )),
        Mistake("only_doubles", (("while good and bad", "while False and bad"),)),
        Mistake("steps_of_low", (("min(2 * rate, high)", "min(rate + low, high)"),)),
        Mistake("tried_twice", (
            ("Trial(rate, meets(rate))", "Trial(rate, meets(rate) and meets(rate))"),
        )),
        Mistake("wrong_half", (
            ("(middle, bad) if trials[-1].is_met else (good, middle)",
             "(good, middle) if trials[-1].is_met else (middle, bad)"),
        )),
        Mistake("absolute_tolerance", (("good * (1 + tolerance)", "good + tolerance"),)),
        Mistake("low_taken_for_granted", (("good, rate = 0.0, low", "good, rate = low, low"),)),
        Mistake("any_range", (("    check_search(low, high, tolerance)\n", ""),)),
    ),
)  # fmt: skip

EXERCISES = (CAPACITY,)
