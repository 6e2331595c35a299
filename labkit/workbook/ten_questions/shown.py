"""The commands of notebook 11: the same account, question by question, where one can ask about it.

Each returns a Report and raises nothing. In the solutions, which keep nothing, it is the sample's.
"""

from dataclasses import dataclass

from labkit.paths import my_dir, write_atomic
from labkit.workbook.catalogue import text
from labkit.workbook.report import Report, Table
from labkit.workbook.session import keeps
from labkit.workbook.ten_questions import left
from labkit.workbook.ten_questions.account import (
    Account,
    Answer,
    account,
    commands,
    label,
    name_of,
    named,
    number,
    outcome,
    sentence,
)
from labkit.workbook.ten_questions.kept import Drawn
from labkit.workbook.ten_questions.questions import OPEN, QUESTIONS, verdict


@dataclass(frozen=True)
class KeptPicture:
    """A kept picture, as a Report shows one."""

    picture: Drawn

    def drawn(self) -> tuple[bytes, dict[str, int]]:
        """The file, and its size on the page."""
        size = {"width": self.picture.width // 2, "height": self.picture.height // 2}
        return self.picture.png, size

    def __repr__(self) -> str:
        return f"{self.picture.story} ({self.picture.date or text('report.no_day')})"


def its_account() -> Account:
    """The learner's; the sample's in a session that keeps nothing."""
    return account(sample=not keeps())


def begun(title: str, found: Account) -> Report:
    """A report that says first of all when it is of the sample."""
    sentences = [(text("report.sample.label"), text("report.sample"))] if found.is_sample else []
    return Report("note", title, sentences)


def summary() -> Report:
    """How far you are: questions, exercises, predictions; then the ten verdicts."""
    found = its_account()
    passed = found.num_exercises - len(found.not_passed)
    figures = [
        ("report.answered", found.num_answered, len(found.answers)),
        ("report.passed", passed, found.num_exercises),
        ("report.hits", found.num_hits, len(found.kept.predicted)),
    ]
    figures = figures[:1] if found.is_sample else figures
    told = [
        (text(key), text("report.of", count=count, total=total)) for key, count, total in figures
    ]
    rows = [
        [
            str(one.question.number),
            text(f"report.q{one.question.number}"),
            text(f"report.verdict.{one.verdict}"),
        ]
        for one in found.answers
    ]
    problems = [("", line) for line in found.kept.problems[:5]]
    result = begun(label("title", found), found)
    result.sentences += told + problems
    result.table = Table(["", "", ""], rows)
    return result


def question(number_of: int) -> Report:
    """One of the ten: the group's answer, what your numbers say, your predictions, a picture."""
    if number_of not in range(1, len(QUESTIONS) + 1):
        return Report("note", text("report.unknown_question", number=repr(number_of)))
    found = its_account()
    answer = found.answers[number_of - 1]
    result = begun(f"{number_of}. {text(f'report.q{number_of}')}", found)
    say = result.sentences.append
    say((text("report.group"), text(f"report.group{number_of}")))
    say((label("verdict", found), text(f"report.verdict.{answer.verdict}")))
    for one in answer.findings:
        day = answer.measured[one.rule.notebook].date or text("report.no_day")
        say((text(f"report.says.{one.says}"), f"{sentence(one, number_of)} ({day})"))
    result.sentences += still_missing(answer, found)
    say(("", text("report.again", commands=commands(answer.question.notebooks))))
    result.table = predictions(answer, found)
    if answer.pictures:
        result.picture = KeptPicture(answer.pictures[0])
    return result


def still_missing(answer: Answer, found: Account) -> list[tuple[str, str]]:
    """The sentence about notebooks that have no numbers yet."""
    if not answer.missing:
        return []
    told = {"notebooks": named(answer.missing), "minutes": found.reading(answer.missing)}
    return [("", text("report.nothing" if answer.verdict == OPEN else "report.partly", **told))]


def predictions(answer: Answer, found: Account) -> Table | None:
    """Predicted beside measured, a row for each."""
    rows = [
        [
            name_of(one.key),
            "" if one.predicted is None else number(one.predicted),
            f"{number(one.measured)} {one.unit}",
            outcome(one),
        ]
        for one in answer.comparisons
    ]
    return Table([label("predictions", found), "", "", ""], rows) if rows else None


def what_if(number_of: int, notebook: str, **numbers: float) -> Report:
    """What numbers that you make up would say of question `number_of`; nothing is kept."""
    if number_of not in range(1, len(QUESTIONS) + 1):
        return Report("note", text("report.unknown_question", number=repr(number_of)))
    findings = QUESTIONS[number_of - 1].findings({notebook: numbers})
    told = [(text(f"report.says.{one.says}"), sentence(one, number_of)) for one in findings]
    title = f"{text('report.example')} {text(f'report.verdict.{verdict(findings)}')}"
    return Report("note", title, told)


def left_open() -> Report:
    """Questions without an answer, exercises not passed, with notebook and minutes."""
    found = account()  # also in the solutions, where all is open
    result = Report("note", text("report.open"))
    say = result.sentences.append
    for key, some in (
        ("report.open.questions", left.unanswered(found)),
        ("report.open.partly", left.answered_in_part(found)),
    ):
        if some:
            say((text(key), "; ".join(left.line_of(one, found) for one in some)))
    if found.not_passed:
        say(("", left.exercises_title(found)))
        result.table = Table(["", ""], [list(line) for line in left.exercise_lines(found)])
    if found.kept.not_compared:
        say(("", left.not_compared(found)))
    if not result.sentences:
        result.outcome, result.title = "passed", text("report.open.nothing")
    return result


def page() -> Report:
    """Writes the page to `my/report.html`."""
    from labkit.workbook.ten_questions.page import html

    path = my_dir() / "report.html"
    try:
        write_atomic(path, html(its_account()))
    except OSError as error:
        return Report("note", text("not_kept", folder=my_dir(), reason=error))
    result = Report("passed", text("report.page.written", file=path.name))
    result.sentences.append(("", text("report.page.more")))
    return result
