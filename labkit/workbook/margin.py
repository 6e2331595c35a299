"""Moves lines of Python to the left margin and back again, losing no byte.

The lines of a multi-line string stay where they are, since their blanks are part of a value;
those of a docstring move with the code. Standard library only.
"""

import ast
import io
import re
import tokenize


def split_lines(source: str) -> list[str]:
    """Lines with their ends, split where Python's own parser splits: \\n, \\r\\n, \\r."""
    return io.StringIO(source, newline="").readlines()


def line_end(line: str) -> str:
    """The line's own end: "\\n", "\\r\\n", or nothing on a last line without one."""
    return line[len(line.rstrip("\r\n")) :]


def blanks(line: str) -> str:
    """What the line is indented with."""
    return re.match(r"[ \t\f]*", line)[0]


def moved_out(source: str, start: int, end: int, indent: str) -> str:
    """Lines `start` to `end` (from 0, end excluded) without `indent`, and "\\n" between them.

    ValueError when `moved_in` could not give them back: a line that is indented less than
    `indent`, or two kinds of line ends.
    """
    fixed, lines = _inside_strings(source), split_lines(source)[start:end]
    if len({line_end(line) for line in lines[:-1]}) > 1:
        raise ValueError(f"lines {start + 1} to {end} end in different ways; use one line end")
    moved = []
    for number, line in enumerate(lines, start):
        line = line.rstrip("\r\n")
        if line.strip() and number not in fixed:
            if not line.startswith(indent):
                raise ValueError(
                    f"line {number + 1} is indented less than its definition, "
                    f"{len(indent)} blanks; indent it at least as far: {line.strip()!r}"
                )
            line = line.removeprefix(indent)
        moved.append(line)
    return "\n".join(moved)


def moved_in(text: str, indent: str) -> str:
    """The text with `indent` before every line that is not blank and not inside a string."""
    fixed = _inside_strings(text)
    return "\n".join(
        indent + line if line.strip() and number not in fixed else line
        for number, line in enumerate(text.split("\n"))
    )


def _inside_strings(source: str) -> set[int]:
    """Lines (from 0) that begin inside a string; docstrings aside."""
    inside: set[int] = set()
    open_since: list[int] = []  # lines where the f-strings begin that are not yet closed
    lines = iter(split_lines(source))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        kind = tokenize.tok_name[token.type]  # f-strings have tokens of their own since 3.12
        if kind.endswith("STRING_START"):
            open_since.append(token.start[0])
        elif kind == "STRING" or kind.endswith("STRING_END"):
            start = token.start[0] if kind == "STRING" else open_since.pop()
            inside.update(range(start, token.end[0]))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            inside.difference_update(range(node.lineno, node.end_lineno))
    return inside
