"""The commands from a folder with Hangul and a space in its name, where the locale is ASCII."""

import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import urllib.request
import venv
from pathlib import Path

import pytest

from labkit import environment, paths

ROOT = paths.repo_root()
ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the checkout in such a folder, with a `.venv` that borrows this one's packages."""
    root = tmp_path_factory.mktemp("스터디 모임") / "work book"
    shutil.copytree(ROOT / "labkit", root / "labkit", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copyfile(ROOT / name, root / name)
    for folder in ("notebooks", "notebooks/ko"):
        write_notebook(root / folder / "00_start_here.ipynb")
    return root


def write_notebook(path):
    cell = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# 시작"}
    book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(book, ensure_ascii=False), encoding="utf-8")


def variables(checkout):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LABKIT_", "LC_"))}
    cache = str(checkout.parent / "cache")
    return kept | ASCII | {"LABKIT_CACHE": cache, "PYTHONWARNDEFAULTENCODING": "1"}


def run(checkout, *arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=checkout,
        env=variables(checkout),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )


def test_a_character_that_the_console_lacks_is_printed_as_an_escape(checkout):
    code = "from labkit.console import make_safe; make_safe(); print('\\uac00 \\u2713')"
    done = run(checkout, "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "\\uac00 \\u2713"


def test_an_error_that_names_the_folder_is_told_whole(checkout):
    code = "from labkit import commands; import sys; sys.exit(commands.main(['가나다'], '도움말'))"
    done = run(checkout, "-X", "utf8", "-c", code)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_the_learners_copies_are_made(checkout):
    code = "from labkit.workbook import copies; copies.sync()"
    done = run(checkout, "-X", "utf8", "-c", code)
    assert done.returncode == 0, done.stderr
    copy = checkout / "my" / "ko" / "00_start_here.ipynb"
    assert "# 시작" in copy.read_text(encoding="utf-8")


@pytest.fixture
def set_up(checkout):
    """Lets the checkout count as set up: an environment, a model, a stamp."""
    made = checkout / ".venv"
    venv.create(made)
    for site in environment.site_packages(made):
        borrowed = [path for path in sys.path if path.endswith("site-packages")]
        line = f"import sys; sys.path += {ascii(borrowed)}\n"  # Python reads it in the locale
        (site / "borrowed.pth").write_text(line, encoding="ascii")
    (made / "share").symlink_to(Path(sys.prefix) / "share", target_is_directory=True)
    model = checkout.parent / "cache" / "models" / "smollm2-135m"
    model.mkdir(parents=True)
    (model / "labkit-manifest.json").write_text("{}", encoding="utf-8")
    stamp = (
        "from labkit import bootstrap as b; import json; print(json.dumps(b.wanted_stamp(None)))"
    )
    done = run(checkout, "-X", "utf8", "-c", stamp)
    (made / "labkit-setup.json").write_text(done.stdout, encoding="utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="the borrowed environment needs links")
def test_jupyterlab_opens_on_the_learners_notebooks(checkout, set_up):
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit", "lab", "--no-browser", "--lang", "ko"],
        cwd=checkout,
        env=variables(checkout),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    )
    lines = queue.Queue()
    threading.Thread(target=lambda: [*map(lines.put, process.stdout)], daemon=True).start()
    said = []
    try:
        while not said or not said[-1].startswith("Open: "):
            said.append(lines.get(timeout=60))
        address = said[-1].split()[1]
        assert "/lab/tree/ko/00_start_here.ipynb?token=" in address
        api = address.replace("/lab/tree/", "/api/contents/")
        local = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with local.open(api, timeout=30) as answer:
            cells = json.load(answer)["content"]["cells"]
        assert cells[0]["source"] == "# 시작"
    except queue.Empty:
        raise AssertionError("".join(said)) from None
    finally:
        process.terminate()
        process.wait(timeout=30)
