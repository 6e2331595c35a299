"""Cuts the body of a function out of a module's source, and puts one back: text in, text out.

A *hole* reaches from the `def` line to the end of the body, and the comments that close it.
Decorators stay in the module. `extract` takes a hole's text out, moved to the left margin;
`splice` moves a text back in, and is the inverse byte for byte:

    splice(cut(m, {symbol: id}), {symbol: extract(m, symbol)}) == m

Standard library only: the build, the checks and the import hook all stand on this file.
"""

import ast
import hashlib
import linecache
import symtable
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

from labkit.workbook import margin

MARK = "# ✏️ Exercise"  # of a hole, wherever one is shown
STUB = MARK + " {id}: your code here"
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
SHOWN_WHOLE = ("__init__", "__post_init__")  # a learner never guesses what an object holds


@dataclass(frozen=True)
class Block:
    """Where a definition stands in its source. Lines are counted from 0."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    first: int  # the line of its first decorator, or of `def`
    start: int  # the line of `def` or `class`
    end: int  # one past the last line
    indent: str  # the blanks before `def`


def find(source: str, symbol: str) -> Block:
    """The block of `symbol`: "next_token", or "NaiveEngine.step" for a method.

    LookupError when the source has no such definition, or several of the name.
    """
    node = ast.parse(source)
    for name in symbol.split("."):
        names = [child.name for child in _definitions(node)]
        if names.count(name) != 1:
            raise LookupError(
                f"{symbol!r} needs one definition of {name!r}, there are {names.count(name)}; "
                f"defined here are {', '.join(names) or 'no names'}"
            )
        node = next(child for child in _definitions(node) if child.name == name)
    return _block(margin.split_lines(source), node)


def extract(source: str, symbol: str, *, decorators: bool = False) -> str:
    """The text of `symbol` at the left margin, with "\\n" line ends and none after the last line.

    ValueError when it could not be put back as it was: a line that is indented less than
    its `def`, or two kinds of line ends.
    """
    return _extract(source, find(source, symbol), decorators)


def blank(source: str, symbol: str, exercise_id: str) -> str:
    """`extract` with the body replaced by the stub; signature and docstring stay."""
    return _without_body(extract(source, symbol), (STUB.format(id=exercise_id), "..."))


def cut(source: str, holes: Mapping[str, str]) -> str:
    """The module with the body of every symbol blanked; `holes` is {symbol: exercise id}."""
    return splice(source, {symbol: blank(source, symbol, id_) for symbol, id_ in holes.items()})


def splice(source: str, parts: Mapping[str, str]) -> str:
    """The module with these texts in the place of its own; `parts` is {symbol: def text}.

    A text may carry `@exercise(...)`, which is left out; other decorators of its own come
    after the module's. The lines of a multi-line string are not moved, since their blanks are
    part of a value. SyntaxError when a text is not Python, ValueError when it is not one
    function of that name.
    """
    for symbol, text in parts.items():
        source = _replace(source, find(source, symbol), plain_def(text, symbol))
    return source


def elide(source: str, class_symbol: str, holes: Mapping[str, str]) -> str:
    """A class to read: docstring, fields and `__init__` whole, of the rest no bodies.

    Methods in `holes`, {"NaiveEngine.step": "01.2"}, are marked with their exercise.
    """
    text = extract(source, class_symbol, decorators=True)
    name = class_symbol.rpartition(".")[2]
    for method in reversed(_methods(find(text, name).node)):  # so that lines above stay
        block = _block(margin.split_lines(text), method)
        if method.name in SHOWN_WHOLE or is_stub(_extract(text, block)):
            continue
        exercise_id = holes.get(f"{class_symbol}.{method.name}")
        if exercise_id:
            view = _without_body(
                _extract(text, block), (f"...  {MARK} {exercise_id}",), docstring=False
            )
        else:
            view = _without_body(_extract(text, block), ("...",))
        text = _replace(text, block, view)
    return text


def is_stub(text: str) -> bool:
    """Whether nothing has been written yet: beside a docstring the body is only `...` or `pass`.

    False for a text that is not Python, since somebody has been writing there.
    """
    try:
        body = _only_function(text).body
    except (SyntaxError, ValueError):
        return False
    return all(
        isinstance(statement, ast.Pass)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


def names_used(source: str, symbol: str, module: str) -> list[str]:
    """The import lines that `symbol` needs to stand alone in a notebook cell.

    They are the module's own imports, in its order, and one of `module` itself for names that
    are defined there.
    """
    used = _global_names(extract(source, symbol)) - {symbol}
    nodes = list(_top_level(ast.parse(source)))
    own = dict.fromkeys(name for node in nodes for name in _names_bound_by(node) if name in used)
    imported = used - set(own)  # what is imported or else defined (`triton = None`) is its own
    lines: dict[str, list[str]] = {}  # "import torch" or "from torch import " → names after it
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name.split(".")[0]) in imported:
                    lines[f"import {ast.unparse(alias)}"] = []
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"{module}, line {node.lineno}: write the whole module name")
            names = [ast.unparse(a) for a in node.names if (a.asname or a.name) in imported]
            if names:
                lines.setdefault(f"from {node.module} import ", []).extend(names)
    if own:
        lines.setdefault(f"from {module} import ", []).extend(own)
    return [start + ", ".join(names) for start, names in lines.items()]


def exercise_cell(
    source: str, symbol: str, module: str, exercise_id: str, *, whole: bool = False
) -> str:
    """The text of an exercise cell: imports, `@exercise(...)`, and the def, blank or whole."""
    text = extract(source, symbol) if whole else blank(source, symbol, exercise_id)
    imports = [*names_used(source, symbol, module), "from labkit.workbook import exercise"]
    return "\n".join([*imports, "", "", f'@exercise("{exercise_id}", "{symbol}")', text])


def module_from(name: str, source: str) -> ModuleType:
    """A fresh module made of `source`. Nothing else sees it: it is not put in `sys.modules`.

    Its lines are known to `linecache`, so that tracebacks and `inspect` show them.
    """
    filename = f"<{name}, spliced {hashlib.sha256(source.encode()).hexdigest()[:8]}>"
    linecache.cache[filename] = (len(source), None, margin.split_lines(source), filename)
    module = ModuleType(name)
    module.__file__ = filename
    module.__package__ = name.rpartition(".")[0]
    exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
    return module


# ------------------------------------------------------------------ definitions


def _top_level(node: ast.AST) -> Iterator[ast.AST]:
    """Everything in a body that belongs to its namespace, `if` and `try` looked into."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, DEFINITIONS):
            yield from _top_level(child)


def _definitions(node: ast.AST) -> Iterator[ast.AST]:
    return (child for child in _top_level(node) if isinstance(child, DEFINITIONS))


def _methods(node: ast.ClassDef) -> list:
    return [child for child in _definitions(node) if isinstance(child, FUNCTIONS)]


def _names_bound_by(node: ast.AST) -> set[str]:
    if isinstance(node, DEFINITIONS):
        return {node.name}
    return {node.id} if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else set()


def _block(lines: list[str], node) -> Block:
    start = node.lineno - 1
    first = min([start, *(decorator.lineno - 1 for decorator in node.decorator_list)])
    indent = margin.blanks(lines[start])
    end = node.end_lineno
    for number, line in enumerate(lines[end:], end + 1):
        is_inside = line.startswith((indent + " ", indent + "\t"))
        if line.strip().startswith("#") and is_inside:
            end = number
        elif line.strip():
            break
    return Block(node, first, start, end, indent)


def _only_function(text: str):
    """The function that `text` consists of. ValueError when it is something else."""
    body = ast.parse(text).body
    if len(body) != 1 or not isinstance(body[0], FUNCTIONS):
        raise ValueError(f"one function is needed, and nothing else; here are {len(body)} parts")
    return body[0]


def _global_names(text: str) -> set[str]:
    """Names that `text` looks up outside itself, annotations and defaults included."""
    tables = [symtable.symtable(text, "<hole>", "exec")]
    for table in tables:  # grows while it is read
        tables += table.get_children()
    return {
        name.get_name()
        for table in tables
        for name in table.get_symbols()
        if name.is_referenced() and (name.is_global() or table.get_type() == "module")
    }


# ------------------------------------------------------------------ texts


def _extract(source: str, block: Block, decorators: bool = False) -> str:
    start = block.first if decorators else block.start
    return margin.moved_out(source, start, block.end, block.indent)


def _replace(source: str, block: Block, text: str) -> str:
    """`source` with `text`, which stands at the left margin, in the place of the hole."""
    lines = margin.split_lines(source)
    moved = margin.moved_in(text, block.indent)
    hole = moved.replace("\n", margin.line_end(lines[block.start]) or "\n")
    hole += margin.line_end(lines[block.end - 1])
    return "".join([*lines[: block.start], hole, *lines[block.end :]])


def plain_def(text: str, symbol: str) -> str:
    """A learner's text without `@exercise(...)`, checked to be the function that is asked for."""
    node = _only_function(text)
    lines = [line.rstrip("\r\n") for line in margin.split_lines(text.rstrip("\r\n"))]
    if node.name != symbol.rpartition(".")[2]:
        raise ValueError(f"this function is called {node.name!r}; {symbol!r} is needed here")
    for decorator in reversed(node.decorator_list):
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called).rpartition(".")[2] == "exercise":
            del lines[decorator.lineno - 1 : decorator.end_lineno]
    return "\n".join(lines)


def _without_body(text: str, stub: tuple[str, ...], *, docstring: bool = True) -> str:
    """The signature and docstring of the def `text`, and then the lines of `stub`."""
    node, lines = _only_function(text), text.split("\n")
    readline = iter(line + "\n" for line in lines)
    tokens = tokenize.generate_tokens(lambda: next(readline, ""))
    kept = next(token.end[0] for token in tokens if token.type == tokenize.NEWLINE)
    for number, statement in enumerate(node.body):
        if statement.lineno <= kept:
            raise ValueError(f"{node.name}: give each statement of the body a line of its own")
        if number == 0 and docstring and ast.get_docstring(node, clean=False) is not None:
            kept = statement.end_lineno
        else:
            break
    indent = margin.blanks(lines[node.body[0].lineno - 1])
    return "\n".join(lines[:kept] + [indent + line for line in stub])
