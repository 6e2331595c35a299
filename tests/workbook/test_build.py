"""Building notebooks from a small package and one source, in a folder of their own."""

import json
import subprocess
import sys
from dataclasses import replace

import nbformat
import pytest

from labkit.workbook import build, catalogue, source
from labkit.workbook.generated import Book, header
from labkit.workbook.notebooks_cli import main
from labkit.workbook.registry import Exercise

ENGINE = '''\
"""An engine."""

import math
from collections import deque


def double(x: int) -> int:
    """Twice `x`."""
    two = 1 + 1
    return x * two


class Engine:
    """Steps."""

    def __init__(self, line=()):
        self.line = deque(line)

    def step(self) -> float:
        """The root of the double of the next."""
        return math.sqrt(double(self.line.popleft()))

    def rest(self) -> int:
        """How many wait."""
        return len(self.line)
'''

SOURCE = """\
# %% [markdown] lang="en"
# # Streaming
#
# Read *this*.

# %% [markdown] lang="ko" of="EN1"
# # 스트리밍
#
# *이것*을 읽으세요.

# %% header minutes=10

# %% [markdown]
# ![a picture](x.svg)

# %% show="pack.engine:Engine"

# %% exercise="01.1"

# %% exercise="01.2"

# %%
1 + 1

# %% tags=["nbval-ignore-output"]
engine = use("01.2")
use("00.1")
predict("itl", low=0, high=1, unit="s")

# %%
1 + 1
"""


def exercise(id_, symbol, core):
    return Exercise(id_, "pack.engine", symbol, core, 15, 2, cases=(), mistakes=())


EXERCISES = {
    "01.1": exercise("01.1", "double", core=True),
    "01.2": exercise("01.2", "Engine.step", core=False),
}


@pytest.fixture
def book(tmp_path):
    book = Book(
        root=tmp_path,
        exercises=EXERCISES,
        text=catalogue.text,
        not_attempted=lambda exercise_id, lang: {
            "text/plain": f"not attempted {exercise_id} {lang}"
        },
    )
    write(book, "pack/engine.py", ENGINE)
    english = "# Streaming\n\nRead *this*."
    write(book, "notebooks/source/01_demo.py", SOURCE.replace("EN1", source.text_hash(english)))
    return book


def write(book, path, text):
    (book.root / path).parent.mkdir(parents=True, exist_ok=True)
    (book.root / path).write_text(text, encoding="utf-8", newline="")


def edit(book, path, old, new):
    text = (book.root / path).read_text(encoding="utf-8")
    assert old in text
    write(book, path, text.replace(old, new))


def built(book, path):
    return nbformat.reads((book.root / path).read_text(encoding="utf-8"), as_version=4)


def cell(book, path, cell_id):
    return next(cell for cell in built(book, path).cells if cell.id == cell_id)


def pretend_run(book):
    """Stores outputs in the solution as `run` does, without a kernel."""
    solution = built(book, "solutions/01_demo.ipynb")
    for number, item in enumerate((c for c in solution.cells if c.cell_type == "code"), 1):
        item.execution_count = number
        item.outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"out {number}\n")]
    solution.metadata["labkit"]["run_seconds"] = 20
    write(book, "solutions/01_demo.ipynb", build.dump(solution))


EN, KO, SOLUTION = (
    f"{folder}/01_demo.ipynb" for folder in ("notebooks", "notebooks/ko", "solutions")
)


def test_building_twice_gives_the_same_bytes(book):
    assert sorted(build.build(book)) == sorted([EN, KO, SOLUTION])
    before = {path: (book.root / path).read_bytes() for path in (EN, KO, SOLUTION)}
    assert build.build(book) == []
    assert {path: (book.root / path).read_bytes() for path in before} == before
    for path in before:
        (book.root / path).unlink()
    build.build(book)
    assert {path: (book.root / path).read_bytes() for path in before} == before


def test_the_first_cell_imports_what_the_notebook_uses_and_starts_it(book):
    build.build(book)
    imports = "from labkit.workbook import check, hint, predict, reset, solution, start, use\n\n"
    assert built(book, EN).cells[0].source == imports + 'start("01")'
    assert built(book, KO).cells[0].source == imports + 'start("01", language="ko")'
    assert built(book, SOLUTION).cells[0].source == imports + 'start("01", keep=False)'


def test_an_exercise_notebook_holds_signature_docstring_and_stub_and_no_body(book):
    build.build(book)
    assert (
        cell(book, EN, "ex-01-2").source
        == '''\
import math
from pack.engine import double
from labkit.workbook import exercise


@exercise("01.2", "Engine.step")
def step(self) -> float:
    """The root of the double of the next."""
    # ✏️ Exercise 01.2: your code here
    ...'''
    )
    for path in (EN, KO):
        text = (book.root / path).read_text(encoding="utf-8")
        assert "x * two" not in text
        assert "math.sqrt(" not in text


def test_a_learners_slip_in_an_exercise_cell_does_not_end_run_all(book):
    build.build(book)
    assert cell(book, EN, "ex-01-1").metadata["tags"] == ["raises-exception"]
    assert cell(book, EN, "ex-01-1").metadata["labkit"] == {"exercise": "01.1"}
    assert "tags" not in cell(book, SOLUTION, "ex-01-1").metadata


def test_the_solution_holds_heading_whole_text_and_check_and_no_hints(book):
    build.build(book)
    assert cell(book, SOLUTION, "ex-01-1").source.endswith(
        '@exercise("01.1", "double")\ndef double(x: int) -> int:\n    """Twice `x`."""\n'
        "    two = 1 + 1\n    return x * two"
    )
    assert cell(book, SOLUTION, "heading-01-1") == cell(book, EN, "heading-01-1")
    assert cell(book, SOLUTION, "check-01-1").source == 'check("01.1")'
    assert "hints-01-1" not in [c.id for c in built(book, SOLUTION).cells]


def test_check_cells_of_exercise_notebooks_say_not_attempted_in_their_language(book):
    build.build(book)
    for path, language in ((EN, "en"), (KO, "ko")):
        check = cell(book, path, "check-01-2")
        assert check.outputs[0].data == {"text/plain": f"not attempted 01.2 {language}"}
        assert check.execution_count is not None  # nbval compares only what was run
        others = [c for c in built(book, path).cells if c.get("outputs") and c.id[:5] != "check"]
        assert others == []


def test_hints_are_folded_and_say_how_to_get_more(book):
    build.build(book)
    hints = cell(book, EN, "hints-01-1").source
    assert hints.count("<details>") == hints.count("</details>") == 3
    assert catalogue.text("01.1.hint2", "en") in hints
    assert 'solution("01.1")' in hints
    assert catalogue.text("01.1.hint1", "ko") in cell(book, KO, "hints-01-1").source


def test_korean_prose_stands_in_the_korean_notebook_with_the_same_ids(book):
    build.build(book)
    english, korean = built(book, EN), built(book, KO)
    assert [c.id for c in english.cells] == [c.id for c in korean.cells]
    assert english.cells[1].source == "# Streaming\n\nRead *this*."
    assert korean.cells[1].source == "# 스트리밍\n\n*이것*을 읽으세요."
    assert english.cells[3].source == korean.cells[3].source == "![a picture](x.svg)"


def test_the_header_counts_minutes_and_names_exercises_and_what_they_build_on(book):
    build.build(book)
    text = cell(book, EN, "header").source
    assert "★★☆" in text
    assert "about 40 minutes" in text  # 10 of reading, 15 and 15
    assert "(25 on the core route)" in text
    assert "`Engine.step` | go further | ★★☆ | 15 |" in text
    assert "Builds on exercises 00.1." in text
    assert "Run All" not in text  # never run yet


def test_a_notebook_with_no_core_exercise_is_said_to_lie_beside_that_route(book):
    besides = {id_: replace(one, core=False) for id_, one in EXERCISES.items()}
    build.build(replace(book, exercises=besides))
    text = cell(book, EN, "header").source
    assert "about 40 minutes, the exercises included (beside the core route; 10 with" in text


def test_the_header_of_a_notebook_without_exercises_mentions_none():
    book = build.labkit_book()
    report = next(one for one in build.sources(book) if one.number == "11")
    top = next(one for one in report.cells if one.kind == "header")
    for folder, minutes in (("notebooks", "about 8 minutes"), ("notebooks/ko", "약 8분")):
        text = header(book, report, top, build.EDITIONS[folder], None).source
        assert text.endswith(minutes)
    solution = header(book, report, top, build.EDITIONS["solutions"], None).source
    assert solution.endswith("*This is the solution notebook: everything has been run.*")


def test_the_header_tells_the_measured_run_time(book):
    build.build(book)
    pretend_run(book)
    build.build(book)
    assert "about 20 s" in cell(book, EN, "header").source
    assert "20초" in cell(book, KO, "header").source


def test_a_class_is_shown_without_bodies_and_its_hole_marked(book):
    build.build(book)
    shown = cell(book, EN, "show-Engine").source
    assert "`Engine`, from `pack/engine.py`" in shown
    assert "self.line = deque(line)" in shown
    assert "...  # ✏️ Exercise 01.2" in shown
    assert "✏️ marks what an exercise fills in" in shown
    assert "len(self.line)" not in shown


def test_showing_the_solution_of_an_exercise_is_refused(book):
    edit(book, "notebooks/source/01_demo.py", "engine:Engine", "engine:double")
    with pytest.raises(source.SourceError, match="01_demo, cell 5 .* solution of 01.1"):
        build.build(book)


def test_a_function_that_is_no_exercise_is_shown_whole(book):
    write(book, "pack/other.py", "import os\n\n\n@cache\ndef f():\n    return os  # ```\n")
    edit(book, "notebooks/source/01_demo.py", "engine:Engine", "other:f")
    build.build(book)
    assert cell(book, EN, "show-f").source.endswith(
        "\n\n````python\n@cache\ndef f():\n    return os  # ```\n````"
    )


def test_what_is_said_to_ruff_is_left_out_of_a_view_and_reasons_stay(book):
    code = "def f(\n    a=g(),  # noqa: B008 - shared\n):  # fmt: skip\n    return a  # noqa\n"
    write(book, "pack/other.py", code)
    edit(book, "notebooks/source/01_demo.py", "engine:Engine", "other:f")
    build.build(book)
    shown = "def f(\n    a=g(),  # shared\n):\n    return a\n```"
    assert cell(book, EN, "show-f").source.endswith(shown)


def test_cells_with_the_same_text_have_ids_of_their_own(book):
    build.build(book)
    ids = [c.id for c in built(book, EN).cells]
    assert len(set(ids)) == len(ids)
    same = f"code-{source.text_hash('1 + 1')}"
    assert [i for i in ids if i.startswith(same)] == [same, f"{same}-2"]


def test_outputs_of_a_run_are_kept_where_the_text_is_the_same(book):
    build.build(book)
    pretend_run(book)
    assert build.stale(book)[0].path == EN  # its header knows no run time yet
    build.build(book)
    edit(book, "pack/engine.py", "two = 1 + 1", "two = 2")
    build.build(book)
    assert cell(book, SOLUTION, "ex-01-2").outputs[0].text == "out 4\n"
    assert cell(book, SOLUTION, "ex-01-1").outputs == []
    assert cell(book, SOLUTION, "ex-01-1").execution_count is None
    assert any("not been run since" in problem for problem in build.problems(book))


def test_check_is_content_with_what_was_built_and_run(book, capsys):
    assert main(["build"], book) == 0
    pretend_run(book)
    assert main(["build"], book) == 0
    assert main(["check"], book) == 0
    assert "OK" in capsys.readouterr().out


def test_check_fails_when_a_line_of_labkit_changed_and_names_notebook_and_exercise(book, capsys):
    main(["build"], book)
    pretend_run(book)
    main(["build"], book)
    capsys.readouterr()
    edit(book, "pack/engine.py", "    return x * two", "    return two * x")
    assert main(["check"], book) == 1
    out = capsys.readouterr().out
    assert "-    return x * two\n+    return two * x\n" in out
    assert f"FAIL {SOLUTION} is out of date: exercise 01.1 changed" in out
    assert EN not in out  # bodies are blank there
    assert "python3 -m labkit notebooks build" in out


def test_check_names_the_view_of_a_class_that_changed(book):
    build.build(book)
    edit(book, "pack/engine.py", '"""Steps."""', '"""Steps on."""')
    assert {item.path: item.changed for item in build.stale(book)} == {
        path: ["view of pack.engine:Engine"] for path in (EN, KO, SOLUTION)
    }


def test_check_sees_a_notebook_that_was_edited_by_hand(book, capsys):
    build.build(book)
    notebook = built(book, EN)
    notebook.cells[1].metadata["collapsed"] = True
    write(book, EN, build.dump(notebook))
    assert main(["check"], book) == 1
    assert '-    "collapsed": true' in capsys.readouterr().out


@pytest.mark.parametrize("content", ["", "{broken", "{}", "[]", None])
def test_a_damaged_or_missing_notebook_is_stale_and_built_anew(book, content):
    build.build(book)
    if content is None:
        (book.root / SOLUTION).unlink()
    else:
        write(book, SOLUTION, content)
    assert [item.path for item in build.stale(book)] == [SOLUTION]
    assert build.build(book) == [SOLUTION]


def test_a_missing_translation_is_reported_and_english_stands_in(book):
    edit(
        book,
        "notebooks/source/01_demo.py",
        "# %% header",
        '# %% [markdown] lang="en"\n# New.\n\n# %% header',
    )
    build.build(book)
    assert "New." in [c.source for c in built(book, KO).cells]
    reports = [p for p in build.problems(book) if "Korean is missing" in p]
    assert len(reports) == 1
    assert f'lang="ko" of="{source.text_hash("New.")}"' in reports[0]


def test_a_translation_of_older_english_is_reported_until_it_is_stamped(book, capsys):
    main(["build"], book)
    edit(book, "notebooks/source/01_demo.py", "Read *this*.", "Read *that*.")
    assert main(["check"], book) == 1
    assert "01_demo, cell 1 (# Streaming): the English is newer" in capsys.readouterr().out
    assert main(["stamp", "01"], book) == 0
    assert not any("newer" in problem for problem in build.problems(book))
    text = (book.root / "notebooks/source/01_demo.py").read_text(encoding="utf-8")
    stamped = f'of="{source.text_hash("# Streaming" + chr(10) * 2 + "Read *that*.")}"'
    assert text == SOURCE.replace("*this*", "*that*").replace('of="EN1"', stamped)


def test_an_exercise_that_no_cell_places_is_reported(book):
    edit(book, "notebooks/source/01_demo.py", '# %% exercise="01.2"\n', "")
    build.build(book)
    assert any("exercise 01.2 stands nowhere" in problem for problem in build.problems(book))


def test_a_notebook_without_a_source_is_reported_and_left_alone(book):
    build.build(book)
    write(book, "notebooks/07_old.ipynb", "{}")
    build.build(book)
    assert any(p.startswith("notebooks/07_old.ipynb") for p in build.problems(book))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('# %% [markdown] lang="ko"\n# 안녕\n', "right after its"),
        ('# %% [markdown] lang="fr"\n# Salut\n', '"en" or "ko"'),
        ("# %% [markdown] weird=3\n# x\n", "weird is not known"),
        ("# %% headre\n", "'headre' is not known"),
        ('# %% exercise="01.1"\nx = 1\n', "leave it empty"),
        ('# %% exercise="09.9"\n', "no exercise '09.9'"),
        ('# %% exercise="01.1"\n# %% exercise="01.1"\n', "01.1 stands here twice"),
        ('# %% show="pack.engine:Nothing"\n', "Nothing"),
        ('# %% show="pack.nowhere:f"\n', "nowhere"),
    ],
)
def test_a_source_that_cannot_be_built_is_refused_by_cell(book, text, complaint, capsys):
    write(book, "notebooks/source/01_demo.py", text)
    assert main(["build"], book) == 1
    error = capsys.readouterr().err
    assert complaint in error
    assert not (book.root / EN).exists()


def test_an_unknown_notebook_number_is_refused(book, capsys):
    assert main(["stamp", "77"], book) == 1
    assert "no notebook '77'; there are 01" in capsys.readouterr().err


def test_a_run_stores_outputs_and_a_failing_run_stores_nothing(book, capsys):
    code = (
        "# %%\nfrom pathlib import Path\nprint('hello')\nprint(Path.home() / 'x')\n\n"
        "# %%\n41 + 1\n\n# %%\n1 / DIVISOR\n"
    )
    write(book, "notebooks/source/01_demo.py", code.replace("DIVISOR", "2"))
    quiet = replace(book, exercises={})
    assert main(["run", "01"], quiet) == 0
    notebook = built(book, SOLUTION)
    assert notebook.cells[1].outputs[0].text == "hello\n~/x\n"
    assert notebook.cells[2].outputs[0].data == {"text/plain": "42"}
    assert notebook.metadata["language_info"] == {"name": "python"}
    assert notebook.metadata["labkit"]["run_seconds"] in range(5, 601)
    before = (book.root / SOLUTION).read_bytes()
    assert main(["run"], quiet) == 0
    assert json.loads((book.root / SOLUTION).read_bytes())["cells"] == json.loads(before)["cells"]
    write(book, "notebooks/source/01_demo.py", code.replace("DIVISOR", "0"))
    before = (book.root / SOLUTION).read_bytes()
    assert main(["run"], quiet) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert (book.root / SOLUTION).read_bytes() == before


def test_building_loads_no_torch():
    code = (
        "import sys; from labkit.workbook import build; book = build.labkit_book(); "
        "book.not_attempted('01.1', 'ko'); build.render(book); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_empty_cell_that_reset_brings_is_the_one_of_the_notebook():
    from labkit.workbook import registry

    item = registry.get("01.2")
    assert build.exercise_cell(item).startswith("from labkit.engine.")
    assert build.exercise_cell(item).endswith("# ✏️ Exercise 01.2: your code here\n    ...")
