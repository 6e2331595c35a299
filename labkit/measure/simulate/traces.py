"""Requests of a real service: the CSV format of Azure's public LLM traces.

https://github.com/Azure/AzurePublicDataset has them (CC-BY 4.0): when each request came and how
many tokens it had, no text.
"""

import csv
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from labkit.measure.simulate.requests import Arrival

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


class TraceError(ValueError):
    """A trace that can't be read; the message names file, line, field and value."""


def read(file: Path) -> Iterator[Arrival]:
    """The requests of a trace, one by one; times count from the first one.

    Raises TraceError for a file that can't be read, other columns, a row that is no request or
    comes before the one above it, and a trace without rows.
    """
    try:
        with Path(file).open(encoding="utf-8-sig", newline="") as lines:
            yield from read_rows(lines, str(file))
    except OSError as error:
        raise TraceError(f"trace {file} can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise TraceError(f"trace {file} is no UTF-8 text ({error}); is it a CSV?") from None


def read_rows(lines, name: str) -> Iterator[Arrival]:
    rows = csv.reader(lines)
    if tuple(next(rows, ())) != COLUMNS:
        raise TraceError(f"trace {name}, line 1: the columns {','.join(COLUMNS)} are needed")
    first = before = None
    for row in rows:
        if not row:
            continue
        try:
            time, prompt, output = read_row(row)
            if before is not None and time < before:
                raise TraceError(f"TIMESTAMP is {row[0]!r}, before the line above; sort the file")
        except TraceError as error:
            raise TraceError(f"trace {name}, line {rows.line_num}: {error}") from None
        first, before = first or time, time
        yield Arrival((time - first).total_seconds(), prompt, output)
    if first is None:
        raise TraceError(f"trace {name} has 0 requests; at least one row is needed")


def read_row(row: list[str]) -> tuple[datetime, int, int]:
    if len(row) != len(COLUMNS):
        raise TraceError(f"{len(row)} fields; {len(COLUMNS)} are needed: {','.join(COLUMNS)}")
    try:
        time = datetime.fromisoformat(row[0].strip())
    except ValueError:
        raise TraceError(
            f"TIMESTAMP is {row[0]!r}; a time such as 2023-11-16 18:17:03.979 is needed"
        ) from None
    return time, *(count(name, text) for name, text in zip(COLUMNS[1:], row[1:], strict=True))


def count(name: str, text: str) -> int:
    if not (text.strip().isdecimal() and int(text) > 0):
        raise TraceError(f"{name} is {text!r}; a whole number from 1 is needed")
    return int(text)
