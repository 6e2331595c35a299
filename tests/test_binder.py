"""Binder's scripts, run as Binder runs them, in a clean copy of the checkout.

The environment is a new one that can see the packages of this one, so that the pins of
`binder/requirements.txt` are resolved for real and nothing of gigabytes is downloaded again.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from labkit import paths

ROOT = paths.repo_root()
CARRIED = ("binder", "labkit", "notebooks", "pyproject.toml", "requirements.txt", "README.md")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Binder builds on Linux")


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A home with the checkout in it and a fresh Python, as Binder's last build step finds it."""
    home = tmp_path_factory.mktemp("home")
    for name in CARRIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, home / name)
    shutil.copymode(ROOT / "binder" / "postBuild", home / "binder" / "postBuild")
    python = home / "env" / "bin" / "python3"
    venv.create(home / "env", with_pip=True)
    here = sysconfig.get_paths()["purelib"]
    site = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"], text=True
    )
    Path(site.strip(), "this_environment.pth").write_text(here + "\n", encoding="utf-8")
    return home


def run(image, *command, **more):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LABKIT_", "PYTHON"))}
    environment |= {"PATH": f"{image / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    environment |= {"HOME": str(image), "LABKIT_CACHE": str(image / ".cache" / "labkit"), **more}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=image,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip_cache():
    """This machine's cache of downloads, so that the model's wheel comes from there."""
    command = [sys.executable, "-m", "pip", "cache", "dir"]
    return subprocess.check_output(command, text=True, encoding="utf-8").strip()


@pytest.fixture(scope="module")
def built(image):
    """The image after both steps."""
    run(image, "python3", "-m", "pip", "install", "-r", "binder/requirements.txt")
    run(image, image / "binder" / "postBuild", PIP_CACHE_DIR=pip_cache())
    return image


def test_binder_uses_a_python_that_the_workbook_supports():
    name, version = (ROOT / "binder" / "runtime.txt").read_text(encoding="utf-8").split("-")
    assert name == "python"
    assert tuple(map(int, version.split("."))) >= (3, 11)


def test_labkit_is_installed_from_the_checkout(built):
    where = run(built, built / "env/bin/python3", "-c", "import labkit; print(labkit.__file__)")
    assert Path(where.strip()) == built / "labkit" / "__init__.py"


def test_the_model_is_in_the_image_and_needs_no_network(built):
    code = (
        "from labkit import model\n"
        "loaded = model.load('smollm2-135m')\n"
        "print(loaded.tokenizer.decode(loaded.tokenizer.encode('baked in')))\n"
    )
    offline = {"PIP_NO_INDEX": "1", "HF_HUB_OFFLINE": "1", "PIP_FIND_LINKS": ""}
    assert "baked in" in run(built, built / "env/bin/python3", "-c", code, **offline)


def test_a_session_finds_the_notebooks_in_its_own_folder(built):
    upstream = {path.name for path in (built / "notebooks").glob("*.ipynb")}
    assert {path.name for path in (built / "my").glob("*.ipynb")} == upstream
