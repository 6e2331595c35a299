"""What a check, a hint or a banner looks like: HTML in JupyterLab, plain text elsewhere.

Colours come with a sign and a word, so that nothing depends on seeing them, and text keeps the
theme's own colour, so that it reads on light and on dark.
"""

import base64
from dataclasses import dataclass, field
from html import escape

GREEN, VERMILLION, ORANGE, GREY, BLUE = "#009E73", "#D55E00", "#E69F00", "#888888", "#0072B2"

LOOKS = {
    "passed": ("✔", GREEN),
    "wrong": ("✘", VERMILLION),
    "crashed": ("⚠", ORANGE),
    "not attempted": ("○", GREY),
    "note": ("ⓘ", BLUE),
}


@dataclass
class Table:
    """A small table; a cell may be a list of items, and `marks` are items to point at."""

    head: list[str]
    rows: list[list]
    marks: set[tuple[int, int, int]] = field(default_factory=set)  # (row, column, item)


@dataclass
class Report:
    """One answer to the learner. `outcome` is one of LOOKS; `title` is the first line."""

    outcome: str
    title: str
    sentences: list[tuple[str, str]] = field(default_factory=list)  # (label or "", text)
    table: Table | None = None
    picture: object = None  # a `Picture` of what the table says
    code: str | None = None
    folded: list[tuple[str, str]] = field(default_factory=list)  # (label, preformatted text)

    def __repr__(self) -> str:
        sign, _ = LOOKS[self.outcome]
        lines = [f"{sign} {self.title}"]
        lines += [f"{label}: {text}" if label else text for label, text in self.sentences]
        if self.table:
            lines += _text_table(self.table)
        if self.picture:
            lines.append(repr(self.picture))
        if self.code:
            lines += ["", self.code.rstrip()]
        for label, text in self.folded:
            lines += ["", f"{label}:", text.rstrip()]
        return sendable("\n".join(lines))

    def _repr_html_(self) -> str:
        sign, colour = LOOKS[self.outcome]
        title = f"{sign} {inline(self.title)}"
        alone = not (self.sentences or self.table or self.picture or self.code)
        parts = [title if alone else f"<strong>{title}</strong>"]
        for label, text in self.sentences:
            before = f"<strong>{escape(label)}:</strong> " if label else ""
            parts.append(f"<p style='margin:.35em 0'>{before}{inline(text)}</p>")
        if self.table:
            parts.append(_html_table(self.table))
        if self.picture:
            parts.append(_html_picture(self.picture))
        if self.code:
            parts.append(_preformatted(self.code))
        for label, text in self.folded:
            parts.append(
                f"<details><summary>{escape(label)}</summary>{_preformatted(text)}</details>"
            )
        style = f"border-left:4px solid {colour};padding:.4em .8em;margin:.2em 0"
        return sendable(f"<div class='labkit-report' style='{style}'>{''.join(parts)}</div>")

    def mimebundle(self) -> dict[str, str]:
        """As a notebook stores it."""
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}


def comparison(expected, found, head: list[str]) -> Table:
    """Expected beside actual, only what differs, the first difference of each list marked."""
    if not (isinstance(expected, dict) and isinstance(found, dict)) or "raised" in found:
        expected, found = {"": expected}, {"": found}
    table = Table(head, [])
    # Something else altogether was found ("out of bounds"): the table says what.
    keys = found if found and not {*expected} & {*found} else expected
    for key in [key for key in keys if expected.get(key) != found.get(key)]:
        ours, yours = _items(expected.get(key)), _items(found.get(key))
        index = next(
            (i for i, (a, b) in enumerate(zip(ours, yours, strict=False)) if a != b),
            min(len(ours), len(yours)),
        )
        row = len(table.rows)
        table.rows.append([key, ours, yours])
        table.marks |= {(row, 1, index), (row, 2, index)}
    return table


def sendable(text: str) -> str:
    """Without lone surrogates, which a part may print and no message can carry."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _items(value) -> list:
    if isinstance(value, list):
        return [_show(item) for item in value[:100]]
    if isinstance(value, dict):
        return [f"{key}: {_show(item)}" for key, item in value.items()]
    return [_show(value)]


def _show(value, depth: int = 0) -> str:
    """A value as Python writes it, cut where nobody would read on."""
    if isinstance(value, list) and depth < 5:
        return "[" + ", ".join(_show(item, depth + 1) for item in value[:20]) + "]"
    shown = "[…]" if isinstance(value, list) else repr(value)
    return shown if len(shown) <= 200 else shown[:200] + "…"


def _text_table(table: Table) -> list[str]:
    def cell(row, column):
        value = table.rows[row][column]
        if not isinstance(value, list):
            return str(value)
        return " ".join(
            f">{item}<" if (row, column, i) in table.marks else str(item)
            for i, item in enumerate(value)
        )

    rows = [table.head] + [
        [cell(row, column) for column in range(len(table.head))] for row in range(len(table.rows))
    ]
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(table.head))]
    return [
        "  ".join(str(text).ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _html_table(table: Table) -> str:
    def cell(row, column, value):
        if not isinstance(value, list):
            return inline(str(value))
        return " ".join(
            f"<code style='{_box((row, column, i) in table.marks)}'>{escape(str(item))}</code>"
            for i, item in enumerate(value)
        )

    style = "text-align:left;padding:.2em .8em .2em 0;vertical-align:baseline"
    head = "".join(f"<th style='{style}'>{escape(text)}</th>" for text in table.head)
    body = "".join(
        "<tr style='background:transparent'>"
        + "".join(
            f"<td style='{style}'>{cell(i, column, value)}</td>" for column, value in enumerate(row)
        )
        + "</tr>"
        for i, row in enumerate(table.rows)
    )
    return (
        f"<table style='margin:.3em 0'><tr style='background:transparent'>{head}</tr>{body}</table>"
    )


def _html_picture(picture) -> str:
    png, size = picture.drawn()
    data, story = base64.b64encode(png).decode("ascii"), escape(repr(picture), quote=True)
    return (
        f"<img src='data:image/png;base64,{data}' alt='{story}' title='{story}' "
        f"style='max-width:100%;width:{size['width']}px;display:block;margin:.4em 0'>"
    )


def _box(marked: bool) -> str:
    edge = f"2px solid {VERMILLION}" if marked else f"1px solid {GREY}55"
    weight = ";font-weight:bold" if marked else ""
    return f"border:{edge};border-radius:3px;padding:0 .3em;background:transparent{weight}"


def _preformatted(text: str) -> str:
    return f"<pre style='white-space:pre-wrap;margin:.4em 0'>{escape(text.rstrip())}</pre>"


def inline(text: str) -> str:
    """Escaped, with `code` between backticks."""
    pieces = escape(text, quote=False).split("`")
    if len(pieces) % 2 == 0:
        return "`".join(pieces)
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))
