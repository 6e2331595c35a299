"""Making the environment of Triton Inference Server: which Python, which stages, what is told."""

import json
import re
import tomllib

import pytest

from labkit import doctor, environment, paths
from labkit.console import SetupError
from labkit.fleet.triton_server import install, pythons
from labkit.fleet.triton_server.pythons import Probe

GOOD = Probe("/usr/bin/python3", (3, 11, 2), "3.11.2", True)
PYENV = Probe("/home/me/.pyenv/bin/python3", (3, 11, 7), "3.11.2", True)
OLD = Probe("/usr/bin/python3", (3, 10, 4), "3.10.4", True)
NO_LIBRARY = Probe("/usr/bin/python3", (3, 12, 3), "", True)
NO_PIP = Probe("/usr/bin/python3", (3, 12, 3), "3.12.3", False)


@pytest.mark.parametrize(
    ("probes", "chosen"),
    [
        ([GOOD], GOOD),
        ([PYENV, GOOD], GOOD),  # another release than the library that it finds
        ([OLD, NO_LIBRARY, NO_PIP], None),
        ([], None),
    ],
)
def test_only_a_python_of_the_librarys_very_release_will_do(probes, chosen):
    assert pythons.choose(probes) == chosen


@pytest.mark.parametrize(
    ("probes", "why", "what"),
    [
        ([NO_LIBRARY], "no shared library", "apt-get install libpython3.12"),
        ([NO_PIP], "can't put pip", "apt-get install python3.12-venv"),
        ([PYENV], "finds the library of 3.11.2", "Debian 12"),
        ([OLD], "no Python 3.11 or 3.12", "Debian 12"),
        ([], "no Python 3.11 or 3.12", "a container of it"),
    ],
)
def test_without_one_it_is_told_what_is_missing_and_what_to_try(probes, why, what):
    reason, remedy = pythons.remedy(probes)
    assert why in reason and what in remedy


@pytest.mark.parametrize(
    ("system", "machine", "told"),
    [
        ("Linux", "x86_64", ""), ("Linux", "aarch64", ""),
        ("Darwin", "arm64", "for Linux, and this is Darwin"),
        ("Windows", "AMD64", "WSL 2"), ("Linux", "riscv64", "not for riscv64"),
    ],
)  # fmt: skip
def test_other_systems_are_told_why_not(system, machine, told):
    found = pythons.refused_by_system(system, machine)
    assert told in found and bool(found) == bool(told)


def test_looking_changes_nothing_and_finds_pythons_or_none():
    for one in pythons.look():
        assert one.path and one.version >= (3,)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of its own, and stages that only note that they ran."""
    ran = []
    monkeypatch.setattr(paths, "repo_root", lambda: tmp_path)
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pythons, "refused_here", lambda: "")
    monkeypatch.setattr(pythons, "look", lambda: [GOOD])

    def make_venv(python):
        ran.append("venv")
        install.stamp_file().unlink(missing_ok=True)
        program = environment.venv_python(install.venv())
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch()

    def pip(arguments, waiting, what, command, venv):
        ran.append("pip")
        packages = venv / "lib" / "python3.11" / "site-packages" / "pytriton"
        (packages / "tritonserver" / "bin").mkdir(parents=True, exist_ok=True)
        (packages / "tritonserver" / "bin" / "tritonserver").touch()

    def check():
        ran.append("check")
        return "2.51.0"

    for stage in (make_venv, pip, check):
        monkeypatch.setattr(install, stage.__name__, stage)
    return ran


def test_it_is_installed_once_and_then_only_looked_at(checkout):
    said = []
    install.ensure(said.append)
    assert checkout == ["venv", "pip", "check"] and install.version() == "2.51.0"
    assert install.why_not() == "" and "2.51.0 is installed" in said[-1]
    install.ensure(said.append)
    assert checkout == ["venv", "pip", "check"]


def test_an_interrupted_installation_is_none_and_goes_on(checkout, monkeypatch):
    install.ensure(print)

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(install, "pip", interrupted)
        with pytest.raises(KeyboardInterrupt):
            install.ensure(print, repair=True)
    assert not install.is_ready() and "doctor --fix triton-server" in install.why_not()
    install.ensure(print)
    assert install.is_ready()


def test_another_version_or_place_is_installed_anew(checkout, monkeypatch):
    install.ensure(print)
    monkeypatch.setattr(install, "PACKAGES", ("nvidia-pytriton==9",))
    assert not install.is_ready()


def test_a_server_that_does_not_answer_is_not_called_installed(checkout, monkeypatch):
    def fail():
        raise SetupError("Triton Inference Server was installed", "it says nothing", "again")

    monkeypatch.setattr(install, "check", fail)
    with pytest.raises(SetupError, match="it says nothing"):
        install.ensure(print)
    assert not install.is_ready()


def test_on_a_system_without_it_the_stored_result_is_named(checkout, monkeypatch):
    monkeypatch.setattr(pythons, "refused_here", lambda: "NVIDIA builds it for Linux")
    with pytest.raises(SetupError) as failed:
        install.ensure(print)
    told = str(failed.value)
    assert "for Linux" in told and "stored result" in told and "--stored" in told
    assert checkout == [] and not install.venv().exists()


def test_the_backend_is_put_together_for_its_python(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "repo_root", lambda: tmp_path)
    packages = install.venv() / "lib" / "python3.11" / "site-packages"
    root = packages / "pytriton" / "tritonserver"
    for name in ("backends/python/libtriton_python.so", "backends/python/utils.py",
                 "python_backend_stubs/3.11/triton_python_backend_stub"):  # fmt: skip
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    for _ in range(2):  # it may be there from before
        install.link(GOOD)
    names = {path.name for path in (install.backends() / "python").iterdir()}
    assert names == {"libtriton_python.so", "utils.py", "triton_python_backend_stub"}
    assert (packages / "labkit.pth").read_text("utf-8").strip() == str(tmp_path)


def test_both_ends_of_a_socket_have_the_same_packages():
    pins = (paths.repo_root() / "requirements.txt").read_text("utf-8").splitlines()
    ours = [one for one in install.PACKAGES if re.match("msgspec|pyzmq", one)]
    assert len(ours) == 2 and set(ours) <= set(pins)


def test_pip_gets_the_packages_and_no_others(checkout, monkeypatch):
    given = []
    monkeypatch.setattr(install, "pip", lambda arguments, *rest: given.append(arguments))
    monkeypatch.setattr(install, "link", lambda python: None)
    install.ensure(print, repair=True)
    assert given == [["install", "--no-deps", *install.PACKAGES]]


def test_git_leaves_it_out():
    ignored = (paths.repo_root() / ".gitignore").read_text("utf-8").splitlines()
    assert ".venv-triton-server/" in ignored


def test_the_doctor_installs_it_and_nothing_else(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(install, "ensure", lambda **options: asked.append(options))
    monkeypatch.setattr(doctor, "run_checks", lambda port: pytest.fail("not asked for"))
    assert doctor.main(["--fix", "triton-server"]) == 0
    assert asked == [{"repair": True}]

    def fail(**_):
        raise SetupError("can't", "no suitable Python", "use a container")

    monkeypatch.setattr(install, "ensure", fail)
    assert doctor.main(["--fix", "triton-server"]) == 1
    assert "use a container" in capsys.readouterr().err


def test_the_doctor_knows_nothing_else_to_install():
    with pytest.raises(SystemExit):
        doctor.main(["--fix", "no-such-thing"])


def test_the_models_are_a_part_of_the_package():
    project = tomllib.loads((paths.repo_root() / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["setuptools"]["packages"]["find"]["include"] == ["labkit*"]
    assert (paths.repo_root() / "labkit/fleet/triton_server/models/__init__.py").exists()


def test_a_damaged_stamp_is_no_stamp(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "repo_root", lambda: tmp_path)
    install.venv().mkdir()
    for text in ("", "[1", json.dumps([1])):
        install.stamp_file().write_text(text, encoding="utf-8")
        assert install.read_stamp() == {} and not install.is_ready()
