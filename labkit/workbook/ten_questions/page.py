"""The report as one HTML file: no script, no network, every text escaped.

The page allows itself nothing but its own style sheet and pictures that stand in it: should a text
of somebody's file ever get through, the browser runs nothing of it. `say` and `escape` are the only
ways by which words get in.
"""

import base64
import hashlib
from collections.abc import Iterable
from html import escape
from pathlib import Path

import labkit
from labkit.workbook import catalogue
from labkit.workbook.catalogue import text
from labkit.workbook.report import inline, sendable
from labkit.workbook.ten_questions import scale, surroundings
from labkit.workbook.ten_questions.account import (
    Account,
    Answer,
    commands,
    label,
    name_of,
    named,
    number,
    outcome,
    sentence,
)
from labkit.workbook.ten_questions.kept import Comparison, Drawn
from labkit.workbook.ten_questions.left import left_over

SIGNS = {"supports": "✔", "sharpens": "◆", "corrects": "✘", "open": "○"}


def html(account: Account) -> str:
    """The whole file."""
    style = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode("utf-8")).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'"
    body = [
        head(account),
        *[question(answer, account) for answer in account.answers],
        rest(account),
        environment(account),
        left_over(account),
    ]
    return sendable(
        f'<!DOCTYPE html>\n<html lang="{catalogue.current_language()}">\n<head>\n'
        '<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(label('title', account))}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(body)}</main>\n</body>\n</html>\n"
    )


def say(key: str, **values) -> str:
    """A sentence of the catalogue, escaped whatever was filled in."""
    return inline(text(key, **values))


# ---- the summary


def head(account: Account) -> str:
    """What has been reached, in three figures; then the ten verdicts."""
    predicted = account.kept.predicted
    passed = account.num_exercises - len(account.not_passed)
    figures = [
        ("report.answered", account.num_answered, len(account.answers)),
        ("report.passed", passed, account.num_exercises),
        ("report.hits", account.num_hits, len(predicted)),
    ]
    boxes = "".join(
        f"<div><dt>{say(key)}</dt><dd>{say('report.of', count=count, total=total)}</dd></div>"
        for key, count, total in figures
    )
    told = f"<dl class='figures'>{boxes}</dl>"
    if account.is_sample:
        told = f"<p class='problems'>{say('report.sample')}</p>"
    drawn = f"<figure>{scale.strip(predicted)}{caption(say('report.strip'))}</figure>"
    day = surroundings.today()
    return (
        f"<header><h1>{escape(label('title', account))}</h1>"
        f"<p class='muted'>{say('report.written', date=day, version=labkit.__version__)}</p>"
        f"{told}{drawn if predicted and not account.is_sample else ''}"
        f"{problems(account.kept.problems)}</header>{contents(account.answers)}"
    )


def problems(found: list[str]) -> str:
    """What could not be read, and what to do about it."""
    if not found:
        return ""
    lines = "".join(f"<li>{inline(line)}</li>" for line in found[:20])
    return f"<aside class='problems'><h2>{say('report.problems')}</h2><ul>{lines}</ul></aside>"


def contents(answers: Iterable[Answer]) -> str:
    """The ten questions with their verdicts, each a link to its section."""
    lines = "".join(
        f'<li><a href="#q{one.question.number}">{say(f"report.q{one.question.number}")}</a> '
        f"{badge(one.verdict)}</li>"
        for one in answers
    )
    return f"<nav><h2>{say('report.contents')}</h2><ol>{lines}</ol></nav>"


def badge(verdict: str) -> str:
    words = say(f"report.verdict.{verdict}")
    return f'<span class="verdict {verdict}">{SIGNS[verdict]} {words}</span>'


# ---- one question


def question(answer: Answer, account: Account) -> str:
    """One of the ten, from the group's answer to where it can be run again."""
    n = answer.question.number
    return (
        f'<section id="q{n}"><h2>{n}. {say(f"report.q{n}")}</h2>'
        f"<h3>{say('report.group')}</h3><blockquote>{say(f'report.group{n}')}</blockquote>"
        f"<h3>{escape(label('verdict', account))}</h3><p>{badge(answer.verdict)}</p>"
        f"{findings(answer)}{missing(answer, account)}{comparisons(answer.comparisons, account)}"
        f"{pictures(answer.pictures)}{numbers(answer)}"
        f"<p class='again'>{say('report.again', commands=commands(answer.question.notebooks))}</p>"
        "</section>"
    )


def findings(answer: Answer) -> str:
    """What each rule found, with the day on which its notebook measured it."""
    lines = "".join(
        f'<li class="{found.says}"><b>{SIGNS[found.says]} {say(f"report.says.{found.says}")}</b> '
        f"{inline(sentence(found, answer.question.number))} "
        f"<small>{day(answer.measured[found.rule.notebook].date)}, "
        f"{say('report.notebook')} {found.rule.notebook}</small></li>"
        for found in answer.findings
    )
    return f'<ul class="findings">{lines}</ul>' if lines else ""


def missing(answer: Answer, account: Account) -> str:
    """Which notebooks of this question have not been run to their answers."""
    if not answer.missing:
        return ""
    key = "report.partly" if answer.is_answered else "report.nothing"
    told = {"notebooks": named(answer.missing), "minutes": account.reading(answer.missing)}
    return f"<p>{say(key, **told)}</p>"


def comparisons(found: list[Comparison], account: Account) -> str:
    """The drawn scales, two beside each other where there is room."""
    if not found:
        return ""
    drawn = "".join(
        f"<figure>{caption(inline(name_of(one.key)))}{scale.scale(one)}"
        f"<p class='muted'>{inline(outcome(one))} · "
        f"{say('report.modelled' if one.modelled else 'report.measured')}, {day(one.date)}</p>"
        "</figure>"
        for one in found
    )
    return f"<h3>{escape(label('predictions', account))}</h3><div class='scales'>{drawn}</div>"


def pictures(found: list[Drawn]) -> str:
    """The learner's own figures, each with the line that tells what is to be seen."""
    if not found:
        return ""
    drawn = "".join(
        f'<figure><div class="picture">{image(one)}</div>'
        f"{caption(f'{escape(one.story)} ({day(one.date)})')}</figure>"
        for one in found
    )
    return f"<h3>{say('report.pictures')}</h3><div class='pictures'>{drawn}</div>"


def image(one: Drawn) -> str:
    """The picture itself, in the page; on paper and screen as large as in the notebook."""
    data = base64.b64encode(one.png).decode("ascii")
    size = f'width="{one.width // 2}" height="{one.height // 2}"'
    return f'<img src="data:image/png;base64,{data}" {size} alt="{escape(one.story)}">'


def numbers(answer: Answer) -> str:
    """Everything that `answer(...)` kept, folded."""
    rows = [
        [one.notebook, name, number(value), one.date or text("report.no_day")]
        for one in answer.measured.values()
        for name, value in one.numbers.items()
    ]
    columns = [text(f"report.{name}") for name in ("notebook", "number", "value", "day")]
    folded = f"<summary>{say('report.numbers')}</summary>{table(columns, rows)}"
    return f"<details>{folded}</details>" if rows else ""


def caption(already_escaped: str) -> str:
    return f"<figcaption>{already_escaped}</figcaption>"


def day(date: str | None) -> str:
    return f"<time>{escape(date or text('report.no_day'))}</time>"


def table(columns: list[str], rows: list[list[str]]) -> str:
    """A table; on a narrow page it scrolls inside its own box."""
    top = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{inline(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    head_row = f"<thead><tr>{top}</tr></thead>" if any(columns) else ""
    return f"<div class='table'><table>{head_row}<tbody>{body}</tbody></table></div>"


# ---- what is around the questions


def rest(account: Account) -> str:
    """Predictions of the other notebooks."""
    if not (found := account.rest):
        return ""
    shown = comparisons(found, account) + pictures([one for item in found for one in item.pictures])
    title = f"<h2>{say('report.rest')}</h2><p>{say('report.rest.more')}</p>"
    return f"<section>{title}{shown}</section>"


def environment(account: Account) -> str:
    """The machine, the versions, and the days of measurement by notebook."""
    rows = [[name, value or text("report.unknown")] for name, value in surroundings.facts().items()]
    days = [[name, ", ".join(found)] for name, found in account.kept.days().items()]
    columns = [text("report.notebook"), text("report.day")]
    measured = table(columns, days) if days else f"<p>{say('report.days.none')}</p>"
    return (
        f"<section><h2>{say('report.environment')}</h2><p>{say('report.environment.more')}</p>"
        f"{table(['', ''], rows)}<h3>{say('report.days')}</h3>{measured}</section>"
    )
