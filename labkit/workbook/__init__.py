"""The workbook: notebooks built from labkit, exercises cut from it, and checks for both.

May import every other room. A notebook's first cell imports its commands from here.
"""

from labkit.workbook.predictions import answer, compare, doctor, predict
from labkit.workbook.session import (
    check,
    exercise,
    hint,
    language,
    progress,
    reset,
    solution,
    start,
    use,
    use_module,
)

__all__ = [
    "answer",
    "check",
    "compare",
    "doctor",
    "exercise",
    "hint",
    "language",
    "predict",
    "progress",
    "reset",
    "solution",
    "start",
    "use",
    "use_module",
]
