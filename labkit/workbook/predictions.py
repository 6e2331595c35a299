"""Predict, run, compare; and the measured answers that the last report collects.

Kept as JSON under `my/`: `predictions.json` and, beside what was measured, `compared.json` by key;
`answers.json` by question number and then by notebook, since several of them answer one question.
"""

import json
import math
import time
from collections.abc import Callable
from datetime import date

from labkit.paths import alone_with, my_dir, read_at_most, write_atomic
from labkit.workbook import pictures
from labkit.workbook.catalogue import text
from labkit.workbook.report import Report, Table

_notebook = ""  # of which the kernel runs the cells

CLOSE = 1.25  # a prediction within this factor, either way, is called close


def kept(file: str) -> dict:
    """What `my/<file>` holds; empty when it is missing or unreadable."""
    try:
        values = json.loads(read_at_most(my_dir() / file).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def keep(file: str, key: str, value) -> None:
    """Sets one entry of `my/<file>`. A file that can't be read is put aside, not overwritten."""
    change(file, key, lambda _: value)


def change(file: str, key: str, changed: Callable) -> None:
    """Sets one entry to `changed(what it was)`, which is None where there was none."""
    path = my_dir() / file
    with alone_with(path):
        before = kept(file)
        if not before and path.is_file():
            at = time.strftime("%Y%m%d-%H%M%S")
            path.replace(path.with_name(f"{path.stem}.damaged-{at}.json"))
        values = {**before, key: changed(before.get(key))}
        write_atomic(path, json.dumps(values, indent=1) + "\n")


def predicted(key: str) -> float | None:
    """What was predicted, None before or where no number is kept."""
    value = kept("predictions.json").get(key)
    return value if type(value) in (int, float) and math.isfinite(value) else None


def predict(key: str, *, low: float, high: float, unit: str, step: float | None = None):
    """A slider for a guess made before measuring; every move is kept under `key`.

    Returns the widget. The question itself stands in the text above the cell.
    """
    from labkit.workbook.slider import Prediction

    pictures.forget()
    step = step or (high - low) / 100
    keep_it = lambda x: keep("predictions.json", key, x)  # noqa: E731
    return Prediction(low, high, step, unit, predicted(key), keep_it)


def compare(key: str, measured: float, unit: str, modelled: bool = False) -> Report:
    """What was predicted under `key`, beside what was measured; or `modelled`, and then said so.

    Both are kept for the report, with the date and the figures just shown.
    """
    result = _compared(key, measured, unit, modelled)
    try:
        keep_comparison(str(key), float(measured), str(unit), bool(modelled))
    except OSError as error:
        result.sentences = [("", text("not_kept", folder=my_dir(), reason=error))]
    return result


def keep_comparison(key: str, measured: float, unit: str, modelled: bool) -> None:
    """Sets the entry of `my/compared.json`; its pictures stay where none were shown this time."""
    fresh = pictures.keep(key)
    today = date.today().isoformat()
    found = {"measured": measured, "unit": unit, "modelled": modelled}
    found |= {"predicted": predicted(key), "date": today, "notebook": _notebook}

    def with_this(before) -> dict:
        older = before.get("pictures") if isinstance(before, dict) else None
        return found | {"pictures": [one | {"date": today} for one in fresh] or older or []}

    change("compared.json", key, with_this)


def _compared(key: str, measured: float, unit: str, modelled: bool) -> Report:
    guess = predicted(key)
    kind = text("compare.modelled" if modelled else "compare.measured")
    if guess is None:
        said = text("compare.none", measured=measured, unit=unit, kind=kind)
        return Report("note", said[0].upper() + said[1:])
    ratio = measured / guess if guess else float("inf")
    close = 1 / CLOSE <= ratio <= CLOSE
    sentence = text(
        "compare.close" if close else "compare.far",
        predicted=guess,
        measured=measured,
        unit=unit,
        ratio=ratio,
        kind=kind,
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
    found = {"date": date.today().isoformat(), "measured": numbers}

    def with_this(before) -> dict:
        before = before if isinstance(before, dict) and "measured" not in before else {}
        return before | {_notebook: found}

    rows = [[name, plain_number(value)] for name, value in numbers.items()]
    result = Report("note", text("answer.kept", number=question), table=Table(["", ""], rows))
    try:
        change("answers.json", str(question), with_this)
    except OSError as error:
        result.title = text("answer.not_kept", number=question)
        result.sentences = [("", text("not_kept", folder=my_dir(), reason=error))]
    return result


def doctor() -> Report:
    """`python3 -m labkit doctor` as a table in the notebook."""
    from labkit.doctor import run_checks

    signs = {"OK": "✔ OK", "WARN": "⚠ WARN", "FAIL": "✘ FAIL"}
    lines = run_checks()
    counts = {status.lower(): sum(line.status == status for line in lines) for status in signs}
    rows = [[line.name, signs[line.status], line.detail, line.remedy or ""] for line in lines]
    outcome = "crashed" if counts["fail"] else "passed"
    return Report(outcome, text("doctor.title", **counts), table=Table(["", "", "", ""], rows))
