"""Cutting holes and filling them again."""

import ast
import inspect
import json
import subprocess
import sys
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.paths import repo_root
from labkit.workbook import cut, registry

MODULE = '''\
"""A module with every shape of a hole. 한글 ✏️"""

import os
import numpy as np, json
from collections import deque as queue, Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

LIMIT: int = 3


def plain(a, b=LIMIT):
    """Adds."""
    # the sum
    return a + b  # trailing 한글
    # a last word


async def waits(
    a: queue,  # the first
    *,
    b: "str" = ")",  # a bracket in a string
) -> dict[str, int]:  # after the signature
    # before the docstring
    """Doc over

    two lines.
    """
    text = f"""{a}
  kept where it is
"""
    return {text: await a,
            b: 2}


@staticmethod
@json.loads
def decorated(): 
    def inner(os):
        """Inner

        doc."""
        return os.path

    if plain:

        return inner

    return """a
b"""


class Outer:
    """Holds three holes."""

    size: int = 0

    class Inner:
        def deep(self) -> "Outer":
            return Outer

    def __init__(self, size):
        self.size = size

    @property
    def name(self) -> str:
        """The name."""
        return "이름" + \\
            str(self.size)

    def first(self, time):
        time = np.array([plain(time)])
        return time

    # about second
    def second(self, x: Counter = None): 
        """Doc.

        \u00a0hard blank, and a\u2028separator that is no line end
        """
        raise ValueError(
            "one "
            f"two {x}"
        )

    def third(self): ...


def last(): # no docstring, no line end
    return os.sep'''

HOLES = {
    "plain": "01.1",
    "waits": "01.2",
    "decorated": "01.3",
    "Outer.Inner.deep": "01.4",
    "Outer.name": "01.5",
    "Outer.first": "01.6",
    "Outer.second": "01.7",
    "last": "01.8",
}


def reference_parts(source, symbols):
    return {symbol: cut.extract(source, symbol) for symbol in symbols}


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_splicing_the_reference_back_gives_the_module_byte_for_byte(line_end):
    source = MODULE.replace("\n", line_end)
    blanked = cut.cut(source, HOLES)
    assert blanked != source
    assert cut.splice(blanked, reference_parts(source, HOLES)) == source


def test_a_module_indented_with_tabs_is_cut_and_spliced_too():
    source = "class A:\n\tdef f(self):\n\t\tif 1:\n\t\t\treturn 1\n\tx = 1\n"
    blanked = cut.cut(source, {"A.f": "01.1"})
    assert "\t\t# ✏️ Exercise 01.1: your code here\n\t\t...\n\tx" in blanked
    assert cut.splice(blanked, {"A.f": cut.extract(source, "A.f")}) == source
    with_spaces = cut.splice(source, {"A.f": "def f(self):\n    if 2:\n        return 3"})
    assert cut.module_from("tabs", with_spaces).A().f() == 3


@given(symbols=st.sets(st.sampled_from(sorted(HOLES))), order=st.randoms(use_true_random=False))
def test_any_set_of_holes_is_spliced_back_in_any_order(symbols, order):
    parts = list(reference_parts(MODULE, symbols).items())
    order.shuffle(parts)
    assert cut.splice(cut.cut(MODULE, {s: HOLES[s] for s in symbols}), dict(parts)) == MODULE


def every_function():
    """Each function and method of labkit, so that none is written that could not be a hole."""
    for path in sorted((repo_root() / "labkit").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            methods = node.body if isinstance(node, ast.ClassDef) else [node]
            prefix = f"{node.name}." if isinstance(node, ast.ClassDef) else ""
            names = [m.name for m in methods if isinstance(m, cut.FUNCTIONS)]
            yield from ((path, source, prefix + name) for name in names if names.count(name) == 1)


def test_every_function_of_labkit_goes_out_and_in_byte_for_byte():
    checked = 0
    for path, source, symbol in every_function():
        part = cut.extract(source, symbol)
        emptied = cut.splice(source, {symbol: f"def {symbol.rpartition('.')[2]}(): ..."})
        assert cut.splice(emptied, {symbol: part}) == source, f"{symbol} in {path}"
        checked += 1
    assert checked > 20


@pytest.mark.parametrize("module", sorted({e.module for e in registry.exercises().values()}))
def test_every_module_with_exercises_is_cut_and_spliced_byte_for_byte(module):
    path = repo_root().joinpath(*module.split(".")).with_suffix(".py")
    source = path.read_bytes().decode("utf-8")
    holes = {e.symbol: e.id for e in registry.exercises().values() if e.module == module}
    blanked = cut.cut(source, holes)
    assert all(cut.is_stub(cut.extract(blanked, symbol)) for symbol in holes)
    assert cut.splice(blanked, reference_parts(source, holes)) == source


def test_a_class_with_three_holes_is_spliced_in_a_spawned_process():
    source = (
        "def twice(x): return 2 * x\n\n"
        "class Pool:\n"
        "    def __init__(self): self.free = [3, 2, 1]\n"
        "    def take(self):\n        return self.free.pop()\n\n"
        "    def give(self, block):\n        self.free.append(block)\n\n"
        "    def total(self):\n        return twice(sum(self.free))\n"
    )
    holes = {"Pool.take": "04.1", "Pool.give": "04.2", "Pool.total": "04.3"}
    job = {"source": cut.cut(source, holes), "parts": reference_parts(source, holes)}
    code = (
        "import json, sys; from labkit.workbook import cut; job = json.load(sys.stdin); "
        "pool = cut.module_from('pool', cut.splice(**job)).Pool(); "
        "pool.give(pool.take() + 6); print(pool.total())"
    )
    child = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(job), text=True, capture_output=True
    )
    assert child.stdout.strip() == "24", child.stderr


def test_a_hole_keeps_signature_and_docstring_and_says_which_exercise_it_is():
    assert (
        cut.blank(MODULE, "waits", "01.2")
        == '''\
async def waits(
    a: queue,  # the first
    *,
    b: "str" = ")",  # a bracket in a string
) -> dict[str, int]:  # after the signature
    # before the docstring
    """Doc over

    two lines.
    """
    # ✏️ Exercise 01.2: your code here
    ...'''
    )


def test_no_line_of_a_body_is_left_in_the_cut_module():
    blanked = cut.cut(MODULE, HOLES)
    assert "a last word" not in blanked
    assert "kept where it is" not in blanked
    assert "# about second" in blanked  # stands before the hole, at its indentation
    assert "@json.loads" in blanked
    ast.parse(blanked)


def test_a_text_with_the_exercise_decorator_is_spliced_without_it():
    text = (
        '@exercise(\n    "01.6", "Outer.first"\n)\n# mine\ndef first(self, time):\n    return 1\n'
    )
    spliced = cut.splice(MODULE, {"Outer.first": text})
    assert "    # mine\n    def first(self, time):\n        return 1\n\n    # about" in spliced
    assert "exercise" not in spliced
    assert cut.splice(spliced, reference_parts(MODULE, ["Outer.second"])) == spliced


def test_other_decorators_of_a_learner_come_after_those_of_the_module():
    text = '@exercise("01.5", "Outer.name")\n@cache\ndef name(self):\n    return 1'
    assert "    @property\n    @cache\n    def name(self):\n" in cut.splice(
        MODULE, {"Outer.name": text}
    )


def test_the_lines_of_a_learners_long_string_keep_their_value():
    text = 'def first(self, time):\n    return f"""a\n{time}\n  b""" + \'c\\\nd\'\n'
    spliced = cut.splice(MODULE, {"Outer.first": text})
    assert '        return f"""a\n{time}\n  b""" + \'c\\\nd\'\n' in spliced


def test_a_learners_text_takes_on_the_line_ends_of_the_module():
    source = MODULE.replace("\n", "\r\n")
    spliced = cut.splice(source, {"plain": "def plain(a, b):\n    c = 1\n    return c\n"})
    assert "\n" not in spliced.replace("\r\n", "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def other(): pass", "called 'other'; 'plain'"),
        ("plain = 3", "one function"),
        ("import os\ndef plain(): pass", "2 parts"),
        ("", "0 parts"),
    ],
)
def test_a_text_that_is_not_the_function_asked_for_is_refused(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        cut.splice(MODULE, {"plain": text})


def test_a_text_that_is_not_python_raises_its_syntax_error():
    with pytest.raises(SyntaxError):
        cut.splice(MODULE, {"plain": "def plain(:"})


@pytest.mark.parametrize("symbol", ["nowhere", "Outer.nowhere", "plain.inner"])
def test_a_symbol_that_is_not_there_is_named(symbol):
    with pytest.raises(LookupError, match=symbol):
        cut.find(MODULE, symbol)


def test_a_symbol_defined_twice_is_refused():
    source = "if x:\n    def f(): return 1\nelse:\n    def f(): return 2\n"
    with pytest.raises(LookupError, match="there are 2"):
        cut.find(source, "f")


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("class A:\n    def f(self):\n        return (\n  1)\n", "line 4 .* indented less"),
        ('class A:\n    def f(self):\n        """a\n  b"""\n', "line 4 .* indented less"),
        ("class A:\n    def f(self):\n        1\r\n        2\n", "different ways"),
    ],
)
def test_a_hole_that_could_not_be_put_back_as_it_was_is_refused(source, complaint):
    with pytest.raises(ValueError, match=complaint):
        cut.extract(source, "A.f")


@pytest.mark.parametrize("source", ["def f(): return 1", 'def f():\n    "doc"; return 1'])
def test_a_body_that_shares_a_line_can_not_be_blanked(source):
    with pytest.raises(ValueError, match="a line of its own"):
        cut.blank(source, "f", "01.1")


def test_a_class_is_shown_with_its_fields_and_without_bodies():
    source = '''\
@dataclass
class Pool:
    """Blocks."""

    size: int = 4  # blocks

    def __init__(self):
        self.free = []  # whole

    def take(self, n):
        """Takes n."""
        return self.free.pop(n)
        # done

    @property
    def used(self):
        return 1

    @used.setter
    def used(self, value):
        self.x = value

    def give(self, n):
        """Gives n back."""
        self.free.append(n)

    def todo(self): ...


def after(): ...
'''
    assert (
        cut.elide(source, "Pool", {"Pool.give": "04.2", "Other.take": "04.3"})
        == '''\
@dataclass
class Pool:
    """Blocks."""

    size: int = 4  # blocks

    def __init__(self):
        self.free = []  # whole

    def take(self, n):
        """Takes n."""
        ...

    @property
    def used(self):
        ...

    @used.setter
    def used(self, value):
        ...

    def give(self, n):
        ...  # ✏️ Exercise 04.2

    def todo(self): ...'''
    )


@pytest.mark.parametrize(
    ("symbol", "lines"),
    [
        ("plain", ["from here import LIMIT"]),
        ("waits", ["from collections import deque as queue"]),
        ("decorated", ["from here import plain"]),
        ("Outer.first", ["import numpy as np", "from here import plain"]),
        ("Outer.second", ["from collections import Counter"]),
        ("Outer.Inner.deep", ["from here import Outer"]),
        ("Outer.name", []),
        ("last", ["import os"]),
    ],
)
def test_a_hole_brings_the_imports_of_the_names_that_it_uses(symbol, lines):
    assert cut.names_used(MODULE, symbol, "here") == lines


def test_imports_inside_if_and_try_count_and_a_function_does_not_import_itself():
    source = (
        "try:\n    import a.b\nexcept ImportError:\n    a = None\n"
        "if 1:\n    from c import d, e\n\ndef f(x: d):\n    return f(a.b(e))\n"
    )
    assert cut.names_used(source, "f", "here") == [
        "from c import d, e",
        "from here import a",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f():\n    # ✏️ Exercise 01.1: your code here\n    ...", True),
        ('@exercise("01.1", "f")\ndef f():\n    """Doc."""\n    pass', True),
        ('def f():\n    """Doc."""', True),
        ("def f():\n    return ...", False),
        ("def f():\n    ...\n    x = 1", False),
        ("def f(:", False),
        ("x = 1", False),
    ],
)
def test_a_stub_is_told_from_an_attempt(text, expected):
    assert cut.is_stub(text) is expected


def test_every_blanked_hole_is_a_stub_and_no_reference_is():
    for symbol, exercise_id in HOLES.items():
        assert cut.is_stub(cut.blank(MODULE, symbol, exercise_id))
        assert not cut.is_stub(cut.extract(MODULE, symbol))


def test_a_spliced_module_shows_its_own_lines_in_tracebacks():
    source = "class A:\n    def f(self):\n        return 1\n"
    module = cut.module_from(
        "labkit.none", cut.splice(source, {"A.f": "def f(self):\n    return 1 / 0  # mine"})
    )
    try:
        module.A().f()
    except ZeroDivisionError as error:
        shown = "".join(traceback.format_exception(error))
    assert "return 1 / 0  # mine" in shown
    assert "# mine" in inspect.getsource(module.A.f)
    assert module.__name__ == "labkit.none"


def test_two_versions_of_a_module_keep_apart():
    one, two = (cut.module_from("m", f"def f():\n    return {n}\n") for n in (1, 2))
    assert (one.f(), two.f()) == (1, 2)
    assert "return 1" in inspect.getsource(one.f)
    assert "return 2" in inspect.getsource(two.f)
