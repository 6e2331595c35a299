"""The set-up as a whole: what is done, what is done again, and what a failure says."""

import json
import shutil
import sys
from collections import namedtuple

import pytest

from labkit import bootstrap, environment, paths, torch_build
from labkit.console import SetupError
from labkit.model import sources

LOCAL = torch_build.choose("2.13.0", "Linux", None, in_folder=True, index_reachable=True)


class Machine:
    """A checkout on which nothing is set up; every stage notes that it ran."""

    def __init__(self, root):
        self.root, self.ran, self.fails = root, [], {}

    def pip(self, arguments, waiting, what, command):
        self.step(what, arguments)

    def step(self, name, arguments=()):
        self.ran.append(name)
        self.arguments = arguments
        if error := self.fails.pop(name, None):
            raise error

    def make_venv(self, command):
        self.step("environment")
        environment.venv_python().parent.mkdir(parents=True, exist_ok=True)
        environment.venv_python().touch()

    def set_up(self, extra=None, **options):
        """Sets up; returns the stages that ran."""
        self.ran = []
        bootstrap.ensure_environment(extra, say=lambda text: None, **options)
        return self.ran


ALL = ["environment", "torch", "the packages", "labkit", "model", "check"]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    root = tmp_path / "공책 work book"
    root.mkdir()
    (root / "requirements.txt").write_text("torch==2.13.0\n", encoding="utf-8")
    (root / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    new = Machine(root)
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(paths, "repo_root", lambda: new.root)
    monkeypatch.setattr(sources, "status", lambda name: ("ready", ""))
    monkeypatch.setattr(environment, "make_venv", new.make_venv)
    monkeypatch.setattr(bootstrap, "torch_choice", lambda: LOCAL)
    monkeypatch.setattr(bootstrap, "pip", new.pip)
    monkeypatch.setattr(bootstrap, "fetch_model", lambda command, waiting: new.step("model"))
    monkeypatch.setattr(bootstrap, "check", lambda command: new.step("check"))
    return new


def test_the_first_run_does_every_stage_and_the_second_none(machine):
    assert machine.set_up() == ALL
    assert machine.set_up() == []


@pytest.mark.parametrize("stage", ALL)
def test_a_run_that_was_interrupted_goes_on(machine, stage):
    machine.fails[stage] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        machine.set_up()
    assert machine.set_up() == ALL
    assert machine.set_up() == []


def test_a_repair_that_was_interrupted_leaves_no_stamp(machine):
    machine.set_up()
    machine.fails["the packages"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        machine.set_up(repair=True)
    assert machine.set_up() == ALL


def test_new_requirements_are_installed(machine):
    machine.set_up()
    (machine.root / "requirements.txt").write_text("torch==2.14.0\n", encoding="utf-8")
    assert machine.set_up() == ALL


def test_a_checkout_that_was_moved_is_set_up_anew(machine, tmp_path):
    machine.set_up()
    machine.root = machine.root.rename(tmp_path / "elsewhere")
    assert machine.set_up() == ALL


def test_a_model_that_is_gone_is_fetched(machine, monkeypatch):
    machine.set_up()
    monkeypatch.setattr(sources, "status", lambda name: ("missing", ""))
    assert "model" in machine.set_up()


def test_a_stamp_that_is_no_json_counts_as_none(machine):
    machine.set_up()
    bootstrap.stamp_file().write_text("{cut", encoding="utf-8")
    assert machine.set_up() == ALL


def test_extras_add_up(machine):
    machine.set_up()
    assert machine.set_up("test") == ALL
    assert machine.set_up() == []
    assert machine.set_up("test") == []
    assert json.loads(bootstrap.stamp_file().read_text(encoding="utf-8"))["extras"] == ["test"]


def test_labkit_is_installed_with_the_extra_that_was_asked_for(machine):
    machine.fails["labkit"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        machine.set_up("test")
    assert machine.arguments[-1] == ".[test]"


def test_torch_comes_from_the_next_source_when_the_first_has_none(machine):
    machine.fails["torch"] = SetupError("torch can't be installed", "no wheel", "again")
    assert machine.set_up().count("torch") == 2


def test_the_last_source_of_torch_gives_the_reason(machine, monkeypatch):
    default = torch_build.choose("2.13.0", "Darwin", None, in_folder=False, index_reachable=False)
    monkeypatch.setattr(bootstrap, "torch_choice", lambda: default)
    machine.fails["torch"] = SetupError("torch can't be installed", "no wheel", "again")
    with pytest.raises(SetupError, match="no wheel"):
        machine.set_up()


def test_sizes_are_said_before_anything_is_fetched(machine):
    said = []
    machine.fails["torch"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bootstrap.ensure_environment(say=said.append)
    words = "\n".join(said)
    assert "0.4 GB to download" in words
    assert "2.8 GB on disk" in words
    assert "a folder of wheels: no NVIDIA GPU was found" in words


def test_a_disk_that_is_too_small_stops_before_the_download(machine, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(free=1.5e9))
    with pytest.raises(SetupError) as failed:
        machine.set_up(command="lab --port 9000")
    assert "2.8 GB are needed and 1.5 GB are free" in str(failed.value)
    assert failed.value.command.endswith("-m labkit lab --port 9000")
    assert machine.ran == ["environment"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Pretends that a torch of some build is in `.venv` already."""

    def pretend(build, gpu):
        (tmp_path / f"torch-{build}.dist-info").mkdir()
        monkeypatch.setattr(environment, "site_packages", lambda: [tmp_path])
        monkeypatch.setattr(bootstrap.platform, "system", lambda: "Linux")
        monkeypatch.setattr(torch_build, "read_gpu", lambda: gpu)
        monkeypatch.setattr(torch_build, "reachable", lambda: False)
        monkeypatch.setattr(environment, "quiet", lambda command: (1, ""))
        return bootstrap.torch_choice()

    return pretend


GPU = torch_build.Gpu("NVIDIA H200", "580.95.05", (9, 0))


@pytest.mark.parametrize("label, gpu", [("+cpu", None), ("", None), ("", GPU)])
def test_a_torch_that_will_do_is_kept(installed, label, gpu):
    version = bootstrap.torch_version()
    choice = installed(version + label, gpu)
    assert choice.sources[0].arguments == ()


def test_a_cpu_torch_gives_way_when_there_is_a_gpu(installed):
    version = bootstrap.torch_version()
    choice = installed(f"{version}+cpu", GPU)
    assert choice.build == "the CUDA build"
    assert choice.sources[0].arguments == (f"torch==={version}",)


@pytest.fixture
def python_that_says(tmp_path, monkeypatch):
    """Lets another program stand in for the Python of `.venv`."""

    def says(code):
        stand_in = tmp_path / "stand_in.py"
        stand_in.write_text(code, encoding="utf-8")
        start = environment.start
        python = [sys.executable, str(stand_in)]
        monkeypatch.setattr(environment, "start", lambda command: start(python))

    return says


def test_the_model_tells_what_it_waits_for(python_that_says):
    python_that_says("print('progress', 0, 3, 'downloading 가중치 (93 MB)')")
    said = []
    bootstrap.fetch_model("again", said.append)
    assert said == ["downloading 가중치 (93 MB)"]


def test_a_model_that_cannot_be_had_says_why_and_what_to_try(python_that_says):
    python_that_says("import sys; print('error no such model'); sys.exit(1)")
    with pytest.raises(SetupError) as failed:
        bootstrap.fetch_model("python3 -m labkit lab", lambda words: None)
    lines = str(failed.value).splitlines()
    assert [line.split(maxsplit=1)[0] for line in lines] == ["FAIL", "no", "Try:"]


def test_packages_that_do_not_import_are_a_failure(python_that_says):
    python_that_says("raise ImportError('no libfoo.so')")
    with pytest.raises(SetupError, match="no libfoo.so"):
        bootstrap.check("again")
