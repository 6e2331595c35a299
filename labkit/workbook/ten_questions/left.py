"""What remains open: questions, exercises, and predictions that were never compared."""

from itertools import groupby

from labkit.workbook.catalogue import text
from labkit.workbook.report import inline
from labkit.workbook.ten_questions.account import Account, Answer, named


def left_over(account: Account) -> str:
    """The last section of the page."""
    open_, partly = unanswered(account), answered_in_part(account)
    parts = []
    for key, found in (("report.open.questions", open_), ("report.open.partly", partly)):
        if found:
            lines = "".join(f"<li>{inline(line_of(one, account))}</li>" for one in found)
            parts.append(f"<h3>{inline(text(key))}</h3><ul>{lines}</ul>")
    if account.not_passed:
        told = [f"{where}: {names}" for where, names in exercise_lines(account)]
        lines = "".join(f"<li>{inline(line)}</li>" for line in told)
        folded = f"<summary>{inline(exercises_title(account))}</summary><ul>{lines}</ul>"
        parts.append(f"<details open>{folded}</details>")
    if account.kept.not_compared:
        parts.append(f"<p>{inline(not_compared(account))}</p>")
    if account.is_sample:
        return ""
    body = "".join(parts) or f"<p>{inline(text('report.open.nothing'))}</p>"
    return f"<section id='open'><h2>{inline(text('report.open'))}</h2>{body}</section>"


def unanswered(account: Account) -> list[Answer]:
    return [one for one in account.answers if not one.is_answered]


def answered_in_part(account: Account) -> list[Answer]:
    return [one for one in account.answers if one.is_answered and one.missing]


def line_of(answer: Answer, account: Account) -> str:
    """A question, and the notebooks that are missing with their minutes."""
    missing = answer.missing or list(answer.question.notebooks)
    told = {"notebooks": named(missing), "minutes": account.reading(missing)}
    n = answer.question.number
    return f"{n}. {text(f'report.q{n}')} ({text('report.open.minutes', **told)})"


def exercises_title(account: Account) -> str:
    """How many are left, and how long they take."""
    return text(
        "report.open.exercises",
        count=len(account.not_passed),
        minutes=sum(one.minutes for one in account.not_passed),
        core=sum(one.core for one in account.not_passed),
    )


def exercise_lines(account: Account) -> list[tuple[str, str]]:
    """For each notebook that has exercises left, where that is and what they are called."""
    lines = []
    for notebook, found in groupby(account.not_passed, key=lambda one: one.notebook):
        told = list(found)
        names = ", ".join(f"{one.id} {text(f'{one.id}.title')}" for one in told)
        minutes = sum(one.minutes for one in told)
        where = text("report.open.minutes", notebooks=named([notebook]), minutes=minutes)
        lines.append((where, names))
    return lines


def not_compared(account: Account) -> str:
    """Predictions that no measurement stands beside."""
    keys = [f"`{key}`" for key in account.kept.not_compared]
    shown = keys[:12] + ["…"] * (len(keys) > 12)
    return text("report.open.predictions", keys=", ".join(shown))
