"""The stand-ins of notebook 05: what a check of a kernel sees, and that it needs no Triton."""

import subprocess
import sys

import pytest

from labkit.workbook import (
    catalogue,
    checker,
    cut,
    fakes_kernels,
    findings,
    my_kernels,
    parts,
    registry,
    report,
)
from labkit.workbook.fakes_kernels import NAN, cell, numbers, place, span
from labkit.workbook.parts import Hole

PAGED = "labkit.kernels.gpu.paged"
CHECK_ALL = """
import sys
sys.modules["triton"] = None  # as on macOS and Windows
from labkit.workbook import registry, worker
from labkit.workbook.parts import Hole
for item in registry.exercises().values():
    if item.notebook == "05":
        worker.warm_up(Hole.of(item))
        print(item.id)
"""


def fresh(old="", new=""):
    return cut.module_from(PAGED, parts.module_source(PAGED).replace(old, new))


def test_numbers_become_plain_data():
    assert numbers([1 / 3, NAN, -1e30, float("-inf"), float("inf"), -0.0]) == [
        0.333, "NaN", "LOWEST", "-inf", "inf", 0.0,
    ]  # fmt: skip


def test_slots_are_told_as_spans():
    assert [span(slots) for slots in ([3, 1, 2], [4], [0, 2])] == ["1-3", "4", "0,2"]
    assert cell({0: ([0, 1], [1, 0])}, False) == "0-1"
    assert cell({1: ([0, 1], []), 2: ([3], [4])}, True) == "h1 K0-1 h2 K3 V4"


def test_a_place_out_of_bounds_is_told_without_its_numbers():
    said = "program (2, 0, 0) reads block table at {} to 9; it has 4 numbers, from 0 on"
    assert place(said.format(-5)) == "2 reads block table before its beginning"
    assert place(said.format(3)) == "2 reads block table past its end"


def test_an_offset_of_32_bits_is_noticed_in_a_pool_that_takes_no_memory():
    pool = fakes_kernels.HugePool((140_000, 2, 8, 16, 128))
    found = fakes_kernels.read_tile(fresh(), pool, [[139_999]], [0], [True])
    assert found["keys"][0][0] == found["values"][0][-1] == 139_999
    narrow = fresh(".to(tl.int64)\n    lines", "\n    lines")
    found = fakes_kernels.read_tile(narrow, pool, [[65_536]], [0], [True])
    assert found == {"out of bounds": "program 0 reads kv before its beginning"}


def test_the_checks_need_no_triton():
    done = subprocess.run([sys.executable, "-c", CHECK_ALL], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["05.1", "05.2", "05.3", "05.4", "05.5"]


def test_triton_itself_runs_and_compiles_a_module():
    pytest.importorskip("triton", reason="triton is there on Linux only")
    module = fresh()
    ran = my_kernels.errors(module)
    assert ran["how"] in ("compiled", "interpreted")
    assert set(ran["errors"]) == set(my_kernels.CASES)
    assert max(ran["errors"].values()) < 2e-6
    (need,) = my_kernels.needs(module, ["merge"], [80])
    assert need["kernel"] == "merge"
    assert need["registers"] > 0 == need["spilled"]


def test_what_triton_says_of_a_wrong_module_is_passed_on():
    pytest.importorskip("triton", reason="triton is there on Linux only")
    wrong = fresh("weights = tl.exp2(scores", "weights = tl.no_such_function(scores")
    with pytest.raises(RuntimeError, match="no_such_function"):
        my_kernels.errors(wrong)


def test_the_reason_of_a_refusal_is_the_innermost_one_and_the_line_is_named():
    try:
        try:
            try:
                raise AssertionError("Both operands must be same dtype")
            except AssertionError as error:
                raise RuntimeError("at 3:4:\n    a = 1\n    b = dot(a)\n    ^\nwhy") from error
        except RuntimeError:
            raise RuntimeError("at 1:0:\nwalk(\n^\nwhy") from None
    except RuntimeError as error:
        said = my_kernels.innermost(error)
    assert said == "AssertionError: Both operands must be same dtype\nin the line: b = dot(a)"


def test_what_the_compiler_refuses_is_passed_on_with_its_reason():
    pytest.importorskip("triton", reason="triton is there on Linux only")
    unlike = fresh("tl.dot(query, tl.trans", "tl.dot(query.to(tl.float32), tl.trans")
    with pytest.raises(RuntimeError, match=r"same dtype.*\nin the line: scores = ") as caught:
        my_kernels.needs(unlike, ["decode"], [80])
    assert "decode_kernel" not in str(caught.value)


def test_the_twin_in_a_check_names_what_it_lacks():
    module, _ = fakes_kernels.on_twin(fresh("tl.exp2(most - largest)", "tl.tanh(most - largest)"))
    with pytest.raises(AttributeError, match="no tl.tanh; it has arange"):
        module.merge(*fakes_kernels.tensors([0], [1], [[1]]))


def test_what_was_found_out_of_bounds_is_told_in_the_table():
    found = {"out of bounds": "program 0 reads kv before its beginning"}
    table = report.comparison({"keys": [], "reads": {}}, found, ["", "expected", "yours"])
    assert [row[0] for row in table.rows] == ["out of bounds"]


def test_a_name_that_no_kernel_knows_gets_its_own_advice():
    item = registry.exercises()["05.5"]
    text = Hole.of(item).reference.replace("tl.exp2", "np.exp2")
    said = repr(findings.report(item, checker.check_cell(item, text, 5.0), 5.0))
    assert catalogue.text("05.unknown", names="`np`", module=item.module) in said


def test_reads_are_left_open_where_a_window_hides_tokens():
    walked = fakes_kernels.walk(fresh(), [5, 2], [4, 7], [(0, 2)], window=3, exact=False)
    assert "reads" not in walked
    assert walked["dtypes"] == ["float32"] * 3


def test_alike_rows_are_not_drawn():
    assert fakes_kernels.drawn_rows([[1.0]], [[1.0]], "sums") is None


NOT_COMPILED = {
    "break": "while True:\n        break",
    "import numpy as np": "import numpy as np",
    "lambda x: x": "most = (lambda x: x)(most)",
}


@pytest.mark.parametrize("said", NOT_COMPILED)
def test_python_that_triton_does_not_compile_is_refused_in_a_check(said):
    begin = "    largest = tl.max(most, axis=0)\n"
    module = fresh(begin, f"    {NOT_COMPILED[said]}\n{begin}")
    with pytest.raises(NotImplementedError, match=f"in a kernel: {said}$"):
        fakes_kernels.on_twin(module)
