"""Every notebook runs unchanged on a GPU: nothing in its cells assumes a CPU. Seen in the text."""

import ast

import pytest

from labkit.paths import repo_root
from labkit.workbook.source import read

SOURCES = [read(path) for path in sorted((repo_root() / "notebooks" / "source").glob("*.py"))]
NEW = {"tensor", "zeros", "ones", "full", "empty", "arange", "rand", "randn", "randint", "eye",
       "as_tensor", "from_numpy", "linspace"}  # fmt: skip
LOADING = {"load", "load_decoder"}
MEASURING = {"measure_machine", "measure_bandwidth", "measure_matmul_flops"}


def name_of(call: ast.Call) -> str:
    return ast.unparse(call.func)


def faults(code: str) -> list[str]:
    """What a cell does that assumes a CPU."""
    found, has_to = [], ".to(" in code
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Constant) and node.value == "cpu":
            found.append(f"line {node.lineno}: the device 'cpu' is written out")
        if not isinstance(node, ast.Call):
            continue
        name, given = name_of(node), {keyword.arg for keyword in node.keywords}
        owner, _, last = name.rpartition(".")
        placed = "device" in given or None in given
        if owner == "torch" and last in NEW and not placed:
            found.append(f"line {node.lineno}: {name} makes a tensor without a device")
        if last in LOADING and owner in ("", "Engine", "labkit.Engine", "loading") and not placed:
            found.append(f"line {node.lineno}: {name} loads without a device")
        if last == "load_for" and not placed and len(node.args) < 4:
            found.append(f"line {node.lineno}: {name} loads without a device")
        if last in MEASURING and not placed and not node.args:
            found.append(f"line {node.lineno}: {name} measures the CPU")
        if "return_tensors" in given and not has_to:
            found.append(f"line {node.lineno}: {name} leaves its tensors on the CPU")
        if last in ("cpu", "cuda") and not node.args and owner:
            found.append(f"line {node.lineno}: {name}() moves to a device by name")
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_no_cell_assumes_a_cpu(source):
    told = {c.where: faults(c.text) for c in source.cells if c.kind == "code"}
    assert {where: what for where, what in told.items() if what} == {}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_notebook_that_loads_a_model_asks_for_the_best_device(source):
    code = "\n".join(cell.text for cell in source.cells if cell.kind == "code")
    if "device=device" in code:
        assert "device = best_device()" in code


@pytest.mark.parametrize(
    "code",
    [
        'load("tiny", device="cpu")',
        'load("tiny")',
        'Engine.load("tiny", rung="paged")',
        'rungs.load_for("paged", "tiny", "float32")',
        "torch.tensor([1])",
        "torch.zeros(2, 3)",
        'tokenizer("a", return_tensors="pt")',
        "measure_machine()",
        "logits.cpu()",
    ],
)
def test_a_cell_that_does_is_seen(code):
    assert len(faults(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        'load("tiny", device=device)',
        'rungs.load_for("paged", "tiny", "float32", device)',
        "torch.tensor([1], device=model.device)",
        "torch.zeros_like(x), json.load(file), torch.stack([x])",
        'tokenizer("a", return_tensors="pt").to(model.device)',
        'measure_machine(device); 6000 if device.startswith("cuda") else 150',
    ],
)
def test_one_that_does_not_is_left_alone(code):
    assert faults(code) == []
