"""A learner's parts in the server: what runs, what falls back, and what is left alone."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import labkit
from labkit import mine, rungs
from labkit.workbook import parts, registry
from labkit.workbook.parts import Hole

ROOT = Path(labkit.__file__).parent.parent
MARK = "def token_forwards(num_prompt_tokens, num_output_tokens, use_cache):\n    return 12345\n"


@pytest.fixture(autouse=True)
def my(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_MY", str(tmp_path / "my 한글"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path / "my 한글"


def save(exercise_id: str, text: str) -> None:
    parts.save_part(exercise_id, text)


def reference(exercise_id: str) -> str:
    return Hole.of(registry.get(exercise_id)).reference


def run(code: str, install: str = "mine.install()"):
    """What `code` prints as JSON in a process of its own; `found` is what `install` gave."""
    first = f"import sys, json; from labkit import mine; found = {install}\n"
    ran = subprocess.run(
        [sys.executable, "-c", first + code], capture_output=True, encoding="utf-8"
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_where_nothing_is_saved_nothing_is_loaded_nor_hooked():
    code = """
before = list(sys.meta_path); mine.install()
print(json.dumps([found.ids, found.problems, sys.meta_path == before,
    sorted(m for m in sys.modules if m.startswith("labkit"))]))"""
    assert run(code) == [[], [], True, ["labkit", "labkit.mine", "labkit.paths"]]


def test_a_module_runs_the_learners_text_and_others_are_untouched():
    code = """
from labkit.measure import metrics, work
print(json.dumps([found.ids, found.problems, found.loaded, work.token_forwards(4, 3, True),
    work.__file__, type(work.__loader__).__name__, type(metrics.__loader__).__name__,
    "torch" in sys.modules]))"""
    save("01.5", reference("01.5"))
    assert run(code)[3] == 6
    save("01.5", MARK)
    file = str(ROOT / "labkit" / "measure" / "work.py")
    assert run(code) == [
        ["01.5"], [], ["01.5"], 12345, file, "SplicedLoader", "SourceFileLoader", False,
    ]  # fmt: skip


def test_two_parts_of_one_module_run_together():
    save("01.1", "def next_token(model, token_ids):\n    return 7\n")
    save("01.2", reference("01.2").replace("token_id = next", "token_id = 10 + next"))
    code = """
from labkit.engine.naive import NaiveEngine
from labkit.engine.request import Request
engine = NaiveEngine(None, ())
engine.add(Request("a", [1], max_tokens=2))
print(json.dumps([found.ids, [engine.step()[0].token_id, engine.step()[0].token_id]]))"""
    assert run(code) == [["01.1", "01.2"], [17, 17]]


def test_labkits_own_text_as_parts_changes_nothing():
    """Byte for byte the same modules, and every case of every exercise comes out right."""
    for exercise_id in registry.exercises():
        save(exercise_id, reference(exercise_id))
    code = """
import importlib
from pathlib import Path
from labkit.workbook import registry, worker
wrong = []
for item in registry.exercises().values():
    module = importlib.import_module(item.module)
    if module.__loader__.get_source(item.module).encode() != Path(module.__file__).read_bytes():
        wrong.append(item.module)
    for case in item.cases:
        if not worker.same(worker.plain(case.observe(module)), worker.plain(case.expected)):
            wrong.append(f"{item.id} {case.name}")
print(json.dumps([found.ids, found.loaded, wrong]))"""
    ids = list(registry.exercises())
    assert run(code) == [ids, ids, []]


def test_no_compiled_file_of_such_a_module_is_written_or_read(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "pyc"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    code = "from labkit.measure import metrics, work; print(work.token_forwards(4, 3, True))"

    def compiled():
        return {file.name.split(".")[0] for file in (tmp_path / "pyc").rglob("*.pyc")}

    save("01.5", MARK)
    assert run(code) == 12345
    assert "metrics" in compiled() and "work" not in compiled()
    assert run(code, install="None") == 6
    assert "work" in compiled()
    assert run(code) == 12345  # though there is a compiled file of labkit's own text
    assert run(code, install="None") == 6


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def token_forwards(n):\n    return 1", r"labkit calls `def token_forwards\(num_prompt"),
        ("def token_forwards(", "can't read line 1: "),
        ("def another():\n    return 1", "there is no `def token_forwards` in it"),
        ("a \0 b", "null bytes"),
        (MARK.replace("return 12345", "nonlocal missing"), "no binding for nonlocal 'missing'"),
        (MARK.replace("):", ") -> Missing:"), r"can't be imported with it \(NameError: .*Missing"),
        ("@exit()\n" + MARK, r"can't be imported with it \(SystemExit: "),
        (None, "invalid start byte"),
    ],
)
def test_a_part_that_cannot_be_used_is_named_and_labkits_own_runs(my, text, why):
    save("01.4", reference("01.4"))
    save("01.5", text or "")
    if text is None:
        (my / "parts" / "01.5.py").write_bytes(b"\xff")
    code = """
from labkit.measure import metrics, work
print(json.dumps([found.ids, found.loaded, work.token_forwards(4, 3, True), found.problems]))"""
    *rest, problems = run(code)
    assert rest == [["01.4"], ["01.4"], 6]
    assert len(problems) == 1
    assert "exercise 01.5: your token_forwards can't be used, labkit's own runs" in problems[0]
    assert re.search(why, problems[0])


def test_every_reason_why_a_part_does_not_fit_has_words():
    source = Path(parts.__file__).read_text(encoding="utf-8")
    assert {*re.findall(r'PartError\(\s*"([^"]+)"', source)} == mine.WHY.keys()


def test_a_traceback_and_inspect_show_the_learners_line():
    save("01.5", MARK.replace("return 12345", "apple = 1\n    raise KeyError(apple)"))
    code = """
import inspect, linecache, traceback
from labkit.measure import work
linecache.checkcache()
try:
    work.token_forwards(1, 1, True)
except KeyError:
    print(json.dumps([traceback.format_exc(), inspect.getsource(work.token_forwards)]))"""
    shown, source = run(code)
    assert "raise KeyError(apple)" in shown
    assert "<labkit.measure.work with your 01.5>" in shown
    assert "apple = 1" in source


def test_a_module_that_is_loaded_already_is_named():
    save("01.5", MARK)
    code = """
from labkit.measure import metrics, work
try:
    mine.install()
except RuntimeError as error:
    print(json.dumps(str(error)))"""
    message = run(code, install="None")
    assert "labkit.measure.work is loaded already" in message and "01.5" in message


def test_only_the_parts_asked_for_are_used_and_a_missing_one_is_told():
    save("01.4", reference("01.4"))
    save("01.5", MARK)
    code = """
from labkit.measure import work
print(json.dumps([found.ids, work.token_forwards(4, 3, True), found.problems]))"""
    assert run(code, 'mine.install(["01.5"])') == [["01.5"], 12345, []]
    assert run(code, "mine.install([])") == [[], 6, []]
    ids, forwards, problems = run(code, 'mine.install(["01.4", "01.3"])')
    assert (ids, forwards, len(problems)) == (["01.4"], 6, 1)
    assert "exercise 01.3" in problems[0] and "there is no" in problems[0]
    with pytest.raises(KeyError, match=r"no exercise '99\.9'"):
        mine.install(["99.9"])


def test_a_second_call_takes_the_place_of_the_first():
    save("01.5", MARK)
    code = """
mine.install([])
from labkit.measure import work
print(work.token_forwards(4, 3, True))"""
    assert run(code) == 6


def test_every_rung_has_its_roots():
    assert [*mine.ROOTS] == [*rungs.RUNGS, "paced"]
    with pytest.raises(ValueError, match="'triton' is not known; accepted are naive, static"):
        mine.on_path("triton")


@pytest.mark.parametrize("rung", rungs.RUNGS)
def test_what_is_on_the_path_of_a_rung_is_what_its_server_loads(rung):
    for exercise_id in registry.exercises():
        save(exercise_id, reference(exercise_id))
    code = f"""
import importlib, pkgutil
import labkit.serving
from labkit import rungs
for module in pkgutil.iter_modules(labkit.serving.__path__, "labkit.serving."):
    if not module.name.endswith("__"):
        importlib.import_module(module.name)
attention = "torch" if mine.has_part_of(mine.REFERENCE) else None
rungs.make("{rung}", rungs.load_for("{rung}", "tiny", "float32", "cpu", attention=attention))
print(json.dumps(found.loaded))"""
    loaded = {*run(code)}
    assert mine.on_path(rung) <= loaded
    idle = loaded - mine.on_path(rung)  # every policy is imported, and these rungs have none
    assert {registry.get(one).module.rpartition(".")[0] for one in idle} <= {mine.POLICIES}
    assert not idle or rung != "preemptive"


def test_of_the_policies_the_one_that_runs_is_on_the_path():
    everything = mine.on_path("preemptive")
    fair, deadline, none = ({one.id for one in registry.exercises().values()
                             if one.module == f"{mine.POLICIES}.{name}"}
                            for name in ("fair", "deadline", "priority"))  # fmt: skip
    assert fair and deadline and not none
    assert mine.on_path("preemptive", "fair") == everything - deadline
    assert mine.on_path("preemptive", "priority") == everything - fair - deadline
    assert not mine.on_path("continuous") & (fair | deadline)
    assert mine.on_path("paced") >= fair | deadline


def test_every_policy_has_a_module_of_its_name():
    from labkit.engine.policies import POLICIES

    assert {*mine.CHOSEN} == {*POLICIES} - {"fcfs"}
    assert {cls.__module__ for cls in POLICIES.values()} >= {
        f"{mine.POLICIES}.{name}" for name in mine.CHOSEN
    }


def test_the_exercises_load_nothing_that_a_part_may_be_in():
    """They are read before `install` hooks the modules, in every process of a server."""
    code = """
from labkit.workbook import registry
registry.exercises()
rooms = tuple(f"labkit.{room}." for room in mine.ROOMS)
heavy = ("torch", "matplotlib")
print(json.dumps([m for m in sys.modules if m.startswith(rooms) or m in heavy]))"""
    assert run(code) == []


def test_asking_for_the_path_imports_nothing_of_it():
    code = """
mine.on_path("preemptive")
print(json.dumps(sorted(m for m in sys.modules if m.startswith("labkit.engine"))))"""
    assert run(code) == []
