"""What holds for the whole project: layers, lint, encodings, what importing costs."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import labkit

PACKAGE = Path(labkit.__file__).parent
ROOT = PACKAGE.parent
ROOMS = ["kernels", "model", "engine", "serving", "fleet", "workbook"]  # imports point to the left
FILES = sorted(PACKAGE.rglob("*.py"))


def imports(path):
    """Every labkit module that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(module):
    """ "model" for labkit.model.tiny; None for what stands at the top or outside."""
    parts = module.split(".")
    return (
        parts[1]
        if parts[0] == "labkit" and len(parts) > 1 and parts[1] in {*ROOMS, "measure"}
        else None
    )


def allowed(importer, imported):
    if importer == "measure":
        return imported != "workbook"
    if imported == "measure":
        return importer in ("fleet", "workbook")
    return ROOMS.index(imported) <= ROOMS.index(importer)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_one_way(path):
    importer = room("labkit." + ".".join(path.relative_to(PACKAGE).with_suffix("").parts))
    if importer is None:
        return  # the command line at the top may start any room
    wrong = [m for m in imports(path) if room(m) and not allowed(importer, room(m))]
    assert not wrong


def test_the_rule_for_layers_can_fail():
    assert not allowed("model", "engine")
    assert not allowed("measure", "workbook")
    assert allowed("workbook", "measure")


def test_every_room_says_what_lives_there():
    for folder in {path.parent for path in FILES}:
        docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8")))
        assert docstring, folder


def test_importing_labkit_loads_nothing_but_itself():
    code = (
        "import sys; before = set(sys.modules); import labkit; "
        "print(sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert loaded.stdout.strip() == "['labkit']"


@pytest.mark.parametrize(
    "module",
    [
        "labkit.workbook",
        "labkit.workbook.build",
        "labkit.model",
        "labkit.engine.request",
        "labkit.engine.blocks",
        "labkit.engine.policies",
        "labkit.engine.scheduler",
        "labkit.model.sampling_params",
        "labkit.model.config",
        "labkit.measure.metrics",
        "labkit.measure.work",
        "labkit.measure.simulate.cli",
        "labkit.fleet.routing",
        "labkit.fleet.triton_server.comparison_run",
        "labkit.fleet.router.route",
        "labkit.serving.options",
        "labkit.mine",
        "labkit.paced",
        "labkit.rungs",
        "labkit.bootstrap",
        "labkit.doctor",
    ],
)
def test_torch_is_loaded_only_where_tensors_are(module):
    code = f"import sys, {module}; print('torch' in sys.modules, 'transformers' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert loaded.stdout.strip() == "False False", loaded.stderr


def test_ruff_is_clean():
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    found = subprocess.run(
        [ruff, "check", "--no-cache", "labkit", "tests", "binder"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
    )
    assert found.returncode == 0, found.stdout


def test_no_file_of_labkit_is_longer_than_300_lines():
    long = {p.name: n for p in FILES if (n := len(p.read_text("utf-8").splitlines())) > 300}
    assert not long


def lines_of_code(path) -> int:
    """Lines that are neither blank nor of a docstring: those of exercises are what learners get."""
    lines = path.read_text("utf-8").splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        kinds = ast.FunctionDef, ast.ClassDef, ast.Module
        if isinstance(node, kinds) and ast.get_docstring(node):
            docstring = node.body[0]
            for number in range(docstring.lineno - 1, docstring.end_lineno):
                lines[number] = ""
    return sum(bool(line.strip()) for line in lines)


def test_the_engine_is_short_enough_to_be_read():
    """The policies included."""
    assert sum(map(lines_of_code, (PACKAGE / "engine").rglob("*.py"))) < 1300


def test_no_shell_is_started():
    for path in FILES:
        assert not re.search(r"shell\s*=\s*True|os\.system|os\.popen", path.read_text("utf-8")), (
            path
        )
