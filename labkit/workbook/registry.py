"""What an exercise is: the hole, the cases that a part must get right, the known mistakes.

The exercises of notebook NN stand in `labkit/workbook/exercises/eNN*.py`. Nothing here loads
torch: a case imports what it needs when it runs, in a process of its own.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from labkit.workbook import exercises as exercises_package


@dataclass(frozen=True)
class Case:
    """One small situation with the answer known beforehand.

    `observe` receives the module with the learner's part spliced in and returns what the part
    did, as plain data (numbers, strings, lists, dicts); it must return `expected`. Where the
    two differ the check says the sentence `ID.case.NAME` of the catalogue: the invariant that
    broke. Cases are run from the first on, so the smallest comes first.

    `draw(expected, found)` makes a picture of the difference (see `drawings`), where one helps.
    It runs in the notebook's process, on the plain data only.
    """

    name: str
    observe: Callable[[ModuleType], object]
    expected: object
    draw: Callable[[object, object], object] | None = None


@dataclass(frozen=True)
class Mistake:
    """A wrong part that people really write, as edits of the reference text.

    It is recognised by behaviour: a part that does in every case what the edited reference
    does has made this mistake, however it is written. The sentence is `ID.mistake.NAME`.
    """

    name: str
    edits: tuple[tuple[str, str], ...]  # (old, new); each `old` occurs exactly once

    def apply(self, reference: str) -> str:
        """The mistaken text. ValueError when the reference no longer holds an edited line."""
        for old, new in self.edits:
            if reference.count(old) != 1:
                raise ValueError(
                    f"known mistake {self.name!r}: {old!r} occurs {reference.count(old)} times "
                    "in the reference, exactly once is needed; bring the edit up to date"
                )
            reference = reference.replace(old, new)
        return reference


@dataclass(frozen=True)
class Exercise:
    """A hole cut in labkit: which symbol, how hard, how long, and how it is checked."""

    id: str  # "01.2": notebook and number; never renumbered
    module: str  # "labkit.engine.naive"
    symbol: str  # "NaiveEngine.step", or a function's name
    core: bool  # on the core route; the others are "go further"
    minutes: int
    difficulty: int  # 1 to 3
    cases: tuple[Case, ...]
    mistakes: tuple[Mistake, ...]

    @property
    def notebook(self) -> str:
        """The two digits of the notebook that it stands in."""
        return self.id.split(".")[0]


@cache
def exercises() -> dict[str, Exercise]:
    """All exercises by id, in order."""
    found = {}
    for module in (m.name for m in pkgutil.iter_modules(exercises_package.__path__)):
        for item in importlib.import_module(f"{exercises_package.__name__}.{module}").EXERCISES:
            found[item.id] = item
    return dict(sorted(found.items()))


def get(exercise_id: str) -> Exercise:
    """The exercise with this id. KeyError that lists the ids there are."""
    try:
        return exercises()[exercise_id]
    except KeyError:
        raise KeyError(
            f"there is no exercise {exercise_id!r}; there are {', '.join(exercises())}"
        ) from None
