"""`.venv`: made, mended, entered, and guarded against what would lead out of it."""

import os
import subprocess
import sys

import pytest

from labkit import environment, paths
from labkit.console import SetupError


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """An empty checkout whose path has a space and Hangul in it."""
    root = tmp_path / "공책 work book"
    root.mkdir()
    monkeypatch.setattr(paths, "repo_root", lambda: root)
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "cache"))
    return root


def test_a_broken_environment_is_made_anew(checkout):
    python = environment.venv_python()
    python.parent.mkdir(parents=True)
    python.write_text("cut short", encoding="utf-8")
    (checkout / ".venv" / "left-over").touch()
    environment.make_venv("python3 -m labkit lab")
    assert environment.works(python)
    assert not (checkout / ".venv" / "left-over").exists()


def test_an_environment_that_works_is_left_alone(checkout, monkeypatch):
    monkeypatch.setattr(environment, "works", lambda python: True)
    kept = checkout / ".venv" / "kept"
    kept.mkdir(parents=True)
    environment.make_venv("")
    assert kept.exists()


@pytest.fixture
def debian(monkeypatch):
    """A Python that can't put pip into an environment. Gives the commands that were run."""
    ran = []
    monkeypatch.setattr(environment, "quiet", lambda command: ran.append(command) or (1, "No pip"))
    monkeypatch.setattr(environment, "works", lambda python: False)
    monkeypatch.setattr(environment.shutil, "which", lambda name: f"/usr/bin/{name}")
    return ran


def test_where_venv_brings_no_pip_the_pip_of_this_python_is_tried(checkout, monkeypatch, debian):
    monkeypatch.setattr(environment, "works", lambda python: len(debian) == 3)
    environment.make_venv("python3 -m labkit lab")
    assert "--without-pip" in debian[1]
    assert debian[2][-2:] == ["install", "pip"]


def test_where_no_pip_can_be_had_the_remedy_is_one_command(checkout, debian):
    with pytest.raises(SetupError) as failed:
        environment.make_venv("python3 -m labkit lab")
    package = f"python3.{sys.version_info.minor}-venv"
    assert failed.value.command == f"sudo apt-get install {package} && python3 -m labkit lab"


def test_elsewhere_the_reason_is_what_was_said(checkout, monkeypatch, debian):
    monkeypatch.setattr(environment.shutil, "which", lambda name: None)
    with pytest.raises(SetupError, match="No pip"):
        environment.make_venv("python3 -m labkit lab")


def test_nothing_leads_pip_or_python_out_of_the_environment():
    outside = {
        "PYTHONPATH": "/opt/ros",
        "PYTHONHOME": "/usr",
        "VIRTUAL_ENV": "/other",
        "PIP_TARGET": "/elsewhere",
        "PIP_USER": "1",
        "PIP_REQUIRE_VIRTUALENV": "1",
        "PIP_INDEX_URL": "https://mirror",
        "PATH": "/bin",
    }
    inside = environment.clean(outside)
    assert not {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET"} & inside.keys()
    assert inside["PIP_USER"] == "0"
    assert (inside["PIP_INDEX_URL"], inside["PATH"]) == ("https://mirror", "/bin")


def test_a_configuration_file_of_pip_does_not_lead_out_of_it_either(tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nuser = true\n", encoding="utf-8")
    variables = environment.clean(dict(os.environ, PIP_CONFIG_FILE=str(config)))
    code = (
        "from pip._internal.commands import create_command\n"
        "options, _ = create_command('install').parse_args(['x'])\n"
        "print(bool(int(options.use_user_site)))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, encoding="utf-8"
    )
    assert told.stdout.strip() == "False", told.stderr


@pytest.mark.parametrize(
    "record, half",
    [
        (None, True),
        ("torch/__init__.py,,\ntorch-1.dist-info/METADATA,,\n", True),
        ("torch/__init__.py,,\ntorch-1.dist-info/INSTALLER,,\n", False),
    ],
)
def test_a_package_that_pip_was_killed_while_unpacking_is_found(tmp_path, record, half):
    info = tmp_path / "torch-1.dist-info"
    info.mkdir()
    if record is not None:
        (info / "RECORD").write_text(record, encoding="utf-8")
    assert environment.half_installed(tmp_path) == ([info] if half else [])


def test_no_package_of_this_environment_counts_as_half_installed():
    folder = next(path for path in sys.path if path.endswith("site-packages"))
    whole = {info.name for info in environment.half_installed(paths.Path(folder))}
    assert not {name for name in whole if name.startswith(("torch-", "jupyterlab-", "pytest-"))}


def test_a_second_set_up_waits_for_the_first(checkout):
    said = []
    with environment.alone(said.append):
        (lock,) = paths.cache_dir().glob("*.lock")
        with open(lock, "w", encoding="utf-8") as second:
            assert not environment._lock(second, wait=False)
    with open(lock, "w", encoding="utf-8") as second:
        assert environment._lock(second, wait=False)
    assert said == []
