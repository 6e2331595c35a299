"""Small automatic damage to a function: off by one, flipped comparison, dropped line.

`mutants(text)` yields (what was done, damaged text). They are what a check must notice.
"""

import ast
import copy
from collections.abc import Iterator

FLIPPED = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def mutants(text: str) -> Iterator[tuple[str, str]]:
    """Every mutant of a `def`, its docstring left alone."""
    tree = ast.parse(text)
    body = tree.body[0].body
    body[:] = body[1:] if ast.get_docstring(tree.body[0]) else body
    original = ast.unparse(tree)
    for index, node in enumerate(ast.walk(tree.body[0])):
        for what, damage in _damages(node):
            damaged = copy.deepcopy(tree)
            damage(list(ast.walk(damaged.body[0]))[index])
            result = ast.unparse(ast.fix_missing_locations(damaged))
            if result != original:
                yield f"line {getattr(node, 'lineno', 1)}: {what}", result


def _damages(node):
    """(description, function that damages such a node in place) for one node."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield f"{node.value} + 1", lambda n: setattr(n, "value", n.value + 1)
        yield f"{node.value} - 1", lambda n: setattr(n, "value", n.value - 1)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield f"not {node.value}", lambda n: setattr(n, "value", not n.value)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in FLIPPED:
        yield f"{ast.unparse(node)} flipped", lambda n: n.ops.__setitem__(
            0, FLIPPED[type(n.ops[0])]()
        )
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in FLIPPED:
        yield f"{ast.unparse(node)} with the other operator", lambda n: setattr(
            n, "op", FLIPPED[type(n.op)]()
        )
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"{ast.unparse(node)} without not", lambda n: setattr(
            n, "operand", ast.UnaryOp(ast.Not(), n.operand)
        )
    if isinstance(node, ast.If | ast.IfExp):
        yield f"condition {ast.unparse(node.test)} negated", lambda n: setattr(
            n, "test", ast.UnaryOp(ast.Not(), n.test)
        )
    for field in ("body", "orelse"):
        statements = getattr(node, field, None)
        for place in range(len(statements) if isinstance(statements, list) else 0):

            def drop(n, field=field, place=place):
                getattr(n, field)[place] = ast.Pass()

            yield f"dropped {ast.unparse(statements[place])!r}", drop
