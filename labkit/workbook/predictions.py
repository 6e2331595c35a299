"""Predict, run, compare; and the measured answers that the last report collects.

Kept as JSON under `my/`: `predictions.json` by key, `answers.json` by question number and then by
notebook, since several of them answer one question.
"""

import json
import time
from datetime import date

from labkit.paths import my_dir, write_atomic
from labkit.workbook.catalogue import text
from labkit.workbook.report import Report, Table

_notebook = ""  # of which the kernel runs the cells

CLOSE = 1.25  # a prediction within this factor, either way, is called close


def kept(file: str) -> dict:
    """What `my/<file>` holds; empty when it is missing or unreadable."""
    try:
        values = json.loads((my_dir() / file).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def keep(file: str, key: str, value) -> None:
    """Sets one entry of `my/<file>`. A file that can't be read is put aside, not overwritten."""
    path, before = my_dir() / file, kept(file)
    if not before and path.is_file():
        path.replace(path.with_name(f"{path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}.json"))
    write_atomic(path, json.dumps({**before, key: value}, indent=1) + "\n")


def predict(key: str, *, low: float, high: float, unit: str, step: float | None = None):
    """A slider for a guess made before measuring; every move is kept under `key`.

    Returns the widget. The question itself stands in the text above the cell.
    """
    from labkit.workbook.slider import Prediction

    before = kept("predictions.json").get(key)
    before = before if isinstance(before, int | float) else None
    step = step or (high - low) / 100
    return Prediction(low, high, step, unit, before, lambda x: keep("predictions.json", key, x))


def compare(key: str, measured: float, unit: str) -> Report:
    """What was predicted under `key`, beside what was measured."""
    predicted = kept("predictions.json").get(key)
    if not isinstance(predicted, int | float):
        return Report("note", text("compare.none", measured=measured, unit=unit))
    ratio = measured / predicted if predicted else float("inf")
    close = 1 / CLOSE <= ratio <= CLOSE
    sentence = text(
        "compare.close" if close else "compare.far",
        predicted=predicted,
        measured=measured,
        unit=unit,
        ratio=ratio,
    )
    return Report("passed" if close else "note", sentence)


def begin(name: str) -> None:
    """Which notebook the answers from now on are of: "01"."""
    global _notebook
    _notebook = name


def answer(question: int, **measured: float) -> Report:
    """Keeps the numbers by which this notebook answers one of the ten questions, with the date."""
    from labkit.workbook.plots import plain_number

    numbers = {name: float(value) for name, value in measured.items()}
    before = kept("answers.json").get(str(question))
    before = before if isinstance(before, dict) and "measured" not in before else {}
    found = {"date": date.today().isoformat(), "measured": numbers}
    keep("answers.json", str(question), before | {_notebook: found})
    rows = [[name, plain_number(value)] for name, value in numbers.items()]
    return Report("note", text("answer.kept", number=question), table=Table(["", ""], rows))


def doctor() -> Report:
    """`python3 -m labkit doctor` as a table in the notebook."""
    from labkit.doctor import run_checks

    signs = {"OK": "✔ OK", "WARN": "⚠ WARN", "FAIL": "✘ FAIL"}
    lines = run_checks()
    counts = {status.lower(): sum(line.status == status for line in lines) for status in signs}
    rows = [[line.name, signs[line.status], line.detail, line.remedy or ""] for line in lines]
    outcome = "crashed" if counts["fail"] else "passed"
    return Report(outcome, text("doctor.title", **counts), table=Table(["", "", "", ""], rows))
