"""The doctor: what each check says of which facts, where the facts come from, what is mended."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

from labkit import bootstrap, diagnoses, doctor, environment, machine, paths
from labkit.console import SetupError
from labkit.diagnoses import FAIL, OK, WARN, Line
from labkit.torch_build import Gpu

ROOT = paths.repo_root()
MEND = "mend it"
H200 = Gpu("NVIDIA H200", "580.65", (9, 0))
GB = 10**9


def status(line: Line) -> str:
    """A line's status; every line that isn't OK has a remedy, and none that is OK."""
    assert bool(line.remedy) == (line.status != OK), line
    return line.status


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (((3, 11, 0), 64, "Linux", "x86_64"), OK),
        (((3, 14, 2), 64, "Windows", "AMD64"), OK),
        (((3, 13, 1), 64, "Darwin", "arm64"), OK),
        (((3, 15, 0), 64, "Linux", "x86_64"), WARN),
        (((3, 10, 9), 64, "Linux", "x86_64"), FAIL),
        (((3, 12, 1), 32, "Windows", "AMD64"), FAIL),
        (((3, 12, 1), 64, "Darwin", "x86_64"), FAIL),
    ],
)
def test_python(facts, expected):
    assert status(diagnoses.check_python(*facts)) == expected


def test_a_missing_environment_fails_with_the_set_up_as_its_remedy():
    line = diagnoses.check_environment(False, False, False, "/usr", MEND)
    assert (status(line), line.detail, line.remedy) == (FAIL, ".venv is missing", MEND)


def test_another_python_will_do_when_it_has_every_package():
    assert status(diagnoses.check_environment(False, False, True, "/conda", MEND)) == OK
    other = diagnoses.check_environment(False, True, False, "/conda", MEND)
    assert status(other) == FAIL and "/conda" in other.detail


PINS = """\
# a remark
torch==2.13.0
triton==3.7.1; sys_platform == "nowhere"
numpy==2.4.6  # another
gguf==0.19.0
"""


def test_packages_are_compared_with_the_pins_that_apply_here():
    pinned = machine.pins(PINS)
    assert [pin.name for pin in pinned] == ["torch", "numpy", "gguf"]
    have = {"torch": "2.13.0+cpu", "numpy": "2.4.5"}
    assert machine.wrong_packages(pinned, have.get) == [
        "numpy 2.4.5 (pinned ==2.4.6)",
        "gguf is missing",
    ]


def test_packages_that_are_wrong_are_named_as_far_as_a_line_goes():
    assert status(diagnoses.check_packages([], 3, MEND)) == OK
    line = diagnoses.check_packages([f"p{number} is missing" for number in range(6)], 9, MEND)
    assert status(line) == FAIL and "p0 is missing" in line.detail and "2 more" in line.detail


def test_without_anything_to_read_pins_with_no_package_counts_as_installed(monkeypatch):
    for module in ("packaging.requirements", "pip._vendor.packaging.requirements"):
        monkeypatch.setitem(sys.modules, module, None)
    assert machine.pins(PINS) == []
    assert status(diagnoses.check_packages([], 0, MEND)) == FAIL


def test_a_package_that_pip_was_killed_over_is_named(tmp_path):
    info = tmp_path / "lib" / "python3.11" / "site-packages" / "gguf-0.19.0.dist-info"
    info.mkdir(parents=True)
    assert machine.half_unpacked(tmp_path) == ["gguf is half unpacked"]


def test_labkit_comes_from_this_checkout(tmp_path):
    assert status(diagnoses.check_labkit(str(ROOT / "labkit" / "__init__.py"), ROOT, MEND)) == OK
    assert status(diagnoses.check_labkit(None, ROOT, MEND)) == FAIL
    other = diagnoses.check_labkit(str(tmp_path / "labkit" / "__init__.py"), ROOT, MEND)
    assert status(other) == FAIL and str(tmp_path) in other.detail


def test_the_kernel_runs_where_labkit_is(tmp_path):
    ours, other = str(tmp_path / "ours"), str(tmp_path / "other")
    assert status(diagnoses.check_kernel("python", ours, ours, MEND)) == OK
    assert "no kernel" in diagnoses.check_kernel(None, None, ours, MEND).detail
    assert "doesn't run" in diagnoses.check_kernel("/gone/python", None, ours, MEND).detail
    wrong = diagnoses.check_kernel("/other/python", other, ours, MEND)
    assert status(wrong) == FAIL and other in wrong.detail and ours in wrong.detail


def test_a_python_tells_which_labkit_it_imports_and_which_kernel_jupyter_starts(
    tmp_path, monkeypatch
):
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    argv = {"argv": ["/gone/python", "-f", "{connection_file}"]}
    spec.write_text(json.dumps(argv | {"display_name": "3", "language": "python"}), "utf-8")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    told = machine.ask(sys.executable)
    assert diagnoses.same(told["prefix"], sys.prefix)
    assert diagnoses.same(told["labkit"], ROOT / "labkit" / "__init__.py")
    assert told["kernel"] == "/gone/python"
    assert machine.prefix_of(told["kernel"], told) is None
    assert machine.prefix_of(sys.executable, told) == told["prefix"]


@pytest.mark.parametrize("state", ["missing", "damaged"])
def test_a_model_that_is_not_ready_can_be_mended(state):
    line = diagnoses.check_model(state, "model.safetensors", MEND)
    assert status(line) == FAIL and state in line.detail and line.mendable
    assert status(diagnoses.check_model("ready", "/cache", MEND)) == OK


def test_copies_behind_the_checkout_are_named(tmp_path):
    notebooks, my_dir = tmp_path / "notebooks", tmp_path / "my"
    for folder in (notebooks, notebooks / "ko", my_dir, my_dir / ".base"):
        folder.mkdir(parents=True)
    for name in ("00_a.ipynb", "01_b.ipynb", "ko/00_a.ipynb"):
        (notebooks / name).write_text("new", encoding="utf-8")
    assert machine.copies(notebooks, my_dir) == ([], 0)
    for name, base in (("00_a.ipynb", "new"), ("01_b.ipynb", "old")):
        (my_dir / name).write_text("a learner's own", encoding="utf-8")
        (my_dir / ".base" / name).write_text(base, encoding="utf-8")
    assert machine.copies(notebooks, my_dir) == (["01_b.ipynb", "ko/00_a.ipynb"], 2)


def test_copies():
    assert status(diagnoses.check_copies([], 0, MEND)) == OK
    assert status(diagnoses.check_copies([], 4, MEND)) == OK
    line = diagnoses.check_copies(["01_b.ipynb"], 4, MEND)
    assert status(line) == WARN and "01_b.ipynb" in line.detail and line.mendable


def test_cores_memory_and_disk_are_enough_or_not():
    assert status(diagnoses.check_cores(2)) == OK
    assert status(diagnoses.check_cores(0.5)) == WARN
    assert status(diagnoses.check_memory(8 * GB, 4 * GB)) == OK
    assert status(diagnoses.check_memory(8 * GB, 1 * GB)) == WARN
    assert status(diagnoses.check_memory(1 * GB, 1 * GB)) == FAIL
    assert status(diagnoses.check_memory(None, None)) == WARN


def test_the_fullest_disk_counts_and_a_set_up_needs_more_of_it():
    free = {"/home": 90 * GB, "/cache": 2 * GB}
    done = diagnoses.check_disk(free, diagnoses.ROOM_GB)
    before = diagnoses.check_disk(free, diagnoses.SETUP_GB)
    assert (status(done), status(before)) == (OK, FAIL)
    assert "/cache" in before.detail
    assert status(diagnoses.check_disk({"/": GB // 2}, diagnoses.ROOM_GB)) == WARN


def test_the_limits_of_a_container_count(tmp_path):
    facts = {
        "cpu.max": "50000 100000",
        "memory.max": str(GB),
        "memory.current": str(GB // 2),
        "memory.stat": f"anon 7\ninactive_file {GB // 4}\n",
    }
    for name, text in facts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert machine.cores(tmp_path) == 0.5
    assert machine.memory(tmp_path) == (GB, GB // 2 + GB // 4)


def test_without_limits_the_machine_counts(tmp_path):
    (tmp_path / "cpu.max").write_text("max 100000", encoding="utf-8")
    (tmp_path / "memory.max").write_text("max", encoding="utf-8")
    assert machine.cores(tmp_path) == machine.cores(tmp_path / "none") >= 1
    total, free = machine.memory(tmp_path)
    assert total >= free > 0


def test_a_folder_that_is_still_to_be_made_has_the_disk_of_its_parent(tmp_path):
    folder = tmp_path / "a" / "b"
    assert machine.disk_free(folder)[str(folder)] > 0


@pytest.mark.parametrize(
    ("facts", "expected", "word"),
    [
        ((None, False, "Linux", "cpu", False), OK, "no NVIDIA GPU"),
        ((None, True, "Linux", "cpu", False), WARN, "nvidia-smi"),
        ((H200, False, "Linux", "13.0", True), OK, "13.0"),
        ((H200, False, "Linux", "13.0", False), WARN, "doesn't start"),
        ((H200, False, "Linux", "cpu", True), WARN, "CPU build"),
        ((H200, False, "Linux", None, True), WARN, "isn't installed"),
        ((H200, False, "Windows", "cpu", False), OK, "on Windows"),
        ((Gpu("NVIDIA T4", "535.1", (7, 5)), False, "Linux", "13.0", False), WARN, "535.1"),
        ((Gpu("Tesla P100", "580.1", (6, 0)), False, "Linux", "13.0", True), WARN, "6.0"),
    ],
)
def test_gpu(facts, expected, word):
    line = diagnoses.check_gpu(*facts, MEND)
    assert status(line) == expected and word in line.detail


@pytest.mark.parametrize(
    ("facts", "expected", "word"),
    [
        (("3.7.1", True, True, True), OK, "compiled"),
        (("3.7.1", True, True, False), WARN, "no C compiler"),
        (("3.7.1", True, False, True), OK, "interpreter only"),
        ((None, True, False, True), WARN, "absent"),
        ((None, False, False, True), WARN, "no build for this platform"),
    ],
)
def test_triton_is_called_the_kernel_language(facts, expected, word):
    line = diagnoses.check_triton(*facts, MEND)
    assert status(line) == expected
    assert word in line.detail and "the kernel language" in line.detail


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", "cpu"),
        ("__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\n", "13.0"),
        ("cuda = '12.6'\n", "12.6"),
    ],
)
def test_the_build_of_torch_is_read_without_loading_it(tmp_path, monkeypatch, text, expected):
    (tmp_path / "version.py").write_text(text, encoding="utf-8")
    found = type("Spec", (), {"origin": str(tmp_path / "__init__.py")})
    monkeypatch.setattr(machine.importlib.util, "find_spec", lambda name: found)
    assert machine.torch_build() == expected


def test_a_port_is_free_or_jupyters_or_another_programs():
    assert status(diagnoses.check_port(8888, True, False)) == OK
    assert status(diagnoses.check_port(8888, False, True)) == OK
    assert status(diagnoses.check_port(8888, False, False)) == WARN


@pytest.mark.parametrize(("server", "expected"), [("TornadoServer/6", True), ("nginx", False)])
def test_jupyter_is_known_by_its_web_server(server, expected):
    class Answer(http.server.BaseHTTPRequestHandler):
        server_version, sys_version = server, ""

        def do_GET(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as web:
        thread = threading.Thread(target=web.handle_request)
        thread.start()
        assert machine.port_use(web.server_port) == (False, expected)
        thread.join()


NAMES = [
    *("python", "environment", "packages", "labkit", "kernel", "model", "copies"),
    *("cores", "memory", "disk", "gpu", "triton", "port"),
]


def test_every_check_gives_its_line():
    lines = doctor.run_checks()
    assert [line.name for line in lines] == NAMES
    assert {status(line) for line in lines} <= {OK, WARN, FAIL}
    assert not [line for line in lines if "can't be checked" in line.detail]


def test_a_machine_that_tells_nothing_still_gets_every_line(monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no such thing here")

    readings = "ask bits cores cuda_starts disk_free memory model_status pins port_use torch_build"
    for name in readings.split():
        monkeypatch.setattr(machine, name, broken)
    lines = doctor.run_checks()
    assert [line.name for line in lines] == NAMES
    assert all(status(line) for line in lines)
    assert "no such thing here" in next(line.detail for line in lines if line.name == "memory")


def test_a_bare_python_says_what_to_start(tmp_path):
    """Nothing is installed, there is no `.venv`, no model, and the console knows ASCII only."""
    checkout = tmp_path / "공책"
    shutil.copytree(ROOT / "labkit", checkout / "labkit")
    shutil.copy(ROOT / "requirements.txt", checkout)
    told = subprocess.run(
        [sys.executable, "-S", "-m", "labkit", "doctor"],  # -S: without any site-packages
        cwd=checkout,
        env={**os.environ, "LABKIT_CACHE": str(tmp_path / "none"), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        encoding="ascii",
        stdin=subprocess.DEVNULL,
    )
    assert told.returncode == 1, told.stderr
    assert "x FAIL  environment  .venv is missing\n" in told.stdout
    assert "-m labkit lab\n" in told.stdout
    assert "x FAIL  model " in told.stdout


def given(monkeypatch, *rounds):
    """Lets `run_checks` find these lines, one list a call; returns what is then mended."""
    left = list(rounds)
    monkeypatch.setattr(doctor, "run_checks", lambda port: left.pop(0))
    mended = []
    monkeypatch.setattr(doctor, "rewrite_kernel", lambda: mended.append("kernel"))
    monkeypatch.setattr("labkit.workbook.copies.sync", lambda: mended.append("copies"))
    monkeypatch.setattr("labkit.model.sources.fetch", lambda **_: mended.append("model"))

    def set_up(**options):
        assert options["repair"]
        print("setting up")
        mended.append("set-up")

    monkeypatch.setattr(bootstrap, "ensure_environment", set_up)
    return mended


def broken(name, state=FAIL):
    return Line(name, state, "wrong", MEND, mendable=True)


FINE = [Line("python", OK, "3.11")]


def test_a_warning_is_no_failure(monkeypatch, capsys):
    given(monkeypatch, [*FINE, Line("cores", WARN, "1", "more")])
    assert doctor.main([]) == 0
    assert "1 OK, 1 WARN, 0 FAIL" in capsys.readouterr().out


def test_nothing_is_mended_unasked(monkeypatch, capsys):
    mended = given(monkeypatch, [broken("model")])
    assert doctor.main([]) == 1
    assert mended == []
    assert "doctor --fix mends: model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["kernel"], ["kernel"]),
        (["model", "copies"], ["model", "copies"]),
        (["packages", "kernel", "model"], ["set-up", "kernel", "model"]),
        (["gpu"], ["set-up"]),
    ],
)
def test_fix_mends_what_is_wrong_and_looks_again(monkeypatch, names, expected):
    monkeypatch.setattr(environment, "in_venv", lambda: True)
    mended = given(monkeypatch, [broken(name) for name in names], FINE)
    assert doctor.main(["--fix"]) == 0
    assert mended == expected


def test_fix_from_outside_sets_up_and_goes_on_within(monkeypatch):
    monkeypatch.setattr(environment, "in_venv", lambda: False)
    went_on = []
    monkeypatch.setattr(environment, "inside", lambda *what: went_on.append(what) or 5)
    mended = given(monkeypatch, [broken("environment"), broken("model")])
    assert doctor.main(["--fix", "--port", "9000"]) == 5
    assert mended == ["set-up"]
    assert went_on == [("labkit.doctor", ["--fix", "--port", "9000"])]


def test_what_cannot_be_mended_is_told_with_the_rest(monkeypatch, capsys):
    given(monkeypatch, [broken("kernel", WARN)], FINE)

    def fail():
        raise SetupError("the kernel can't be written", "the disk is full", "free some")

    monkeypatch.setattr(doctor, "rewrite_kernel", fail)
    assert doctor.main(["--fix"]) == 1
    told = capsys.readouterr()
    assert "the disk is full" in told.err and "python" in told.out


def test_json_is_all_that_goes_to_stdout(monkeypatch, capsys):
    monkeypatch.setattr(environment, "in_venv", lambda: True)
    given(monkeypatch, [broken("packages")], FINE)
    assert doctor.main(["--json", "--fix"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out) == [
        {"name": "python", "status": OK, "detail": "3.11", "remedy": "", "mendable": False}
    ]
    assert "setting up" in told.err


def test_a_kernel_that_points_elsewhere_is_written_anew(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(environment, "quiet", lambda command: ran.append(command) or (0, ""))
    doctor.rewrite_kernel()
    assert ran == [[sys.executable, "-m", "ipykernel", "install", "--sys-prefix"]]
    monkeypatch.setattr(environment, "quiet", lambda command: (1, "No module named ipykernel"))
    with pytest.raises(SetupError, match="No module named ipykernel"):
        doctor.rewrite_kernel()


def test_the_columns_are_aligned_and_a_poor_console_gets_plain_signs():
    lines = [Line("a", OK, "fine"), Line("longer", FAIL, "bad", "do this")]
    assert doctor.render(lines, "utf-8").splitlines()[:3] == [
        "✔ OK    a       fine",
        "✘ FAIL  longer  bad",
        "                Try: do this",
    ]
    for encoding in ("ascii", "cp949", "no-such-encoding"):
        assert doctor.render(lines, encoding).startswith("+ OK    a ")


def test_help_names_every_check(capsys):
    with pytest.raises(SystemExit) as left:
        doctor.main(["--help"])
    assert left.value.code == 0
    told = capsys.readouterr().out
    assert all(name in told for name in NAMES)
    assert "--fix" in told and "exit status" in told


def test_the_notebook_shows_the_same_lines_as_a_table():
    from labkit.workbook import predictions

    report = predictions.doctor()
    assert [row[0] for row in report.table.rows] == NAMES


def test_importing_the_doctor_loads_nothing_heavy():
    code = "import sys; from labkit import doctor; print({'torch', 'numpy'} & set(sys.modules))"
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert told.stdout.strip() == "set()", told.stderr
