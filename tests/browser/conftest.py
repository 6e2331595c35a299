"""JupyterLab as `python3 -m labkit lab` starts it, opened in a headless browser."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labkit import lab, paths

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATIENCE_S = 180  # how long a slow machine may take; no test is about time
SETTINGS = {
    # All cells are in the page, also those far outside the window.
    "@jupyterlab/notebook-extension/tracker.jupyterlab-settings": {"windowingMode": "none"},
}


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium or Chrome of this machine."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install -e '.[test]'"
    )
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"no browser is installed: none of {', '.join(BROWSERS)} is on the PATH")
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=found, args=arguments)
        yield started
        started.close()


@pytest.fixture
def my_dir(tmp_path) -> Path:
    """The folder of a learner who opens the workbook for the first time."""
    return tmp_path / "my"


@pytest.fixture
def address(browser, my_dir, tmp_path):
    """The address that `labkit lab` prints; the server ends with the test, and its kernels too."""
    variables = dict(os.environ, LABKIT_MY=str(my_dir), **jupyter_folders(tmp_path / "jupyter"))
    variables.pop("MPLBACKEND", None)  # figures are drawn in the notebook, as a learner has them
    command = [sys.executable, "-m", "labkit.lab", "--no-browser", "--port", str(free_port())]
    log = tmp_path / "lab.log"
    with log.open("w", encoding="utf-8") as output:
        server = subprocess.Popen(
            command, cwd=paths.repo_root(), env=variables, stdout=output, stderr=output
        )
    try:
        yield printed_address(server, log)
    finally:
        server.terminate()
        try:
            server.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@pytest.fixture
def page(browser, address, request):
    """Notebook 00 in JupyterLab, its kernel ready; what it shows at the end is kept."""
    folder = Path(os.environ.get("LABKIT_ARTIFACTS") or paths.repo_root() / "artifacts")
    opened = browser.new_page(viewport={"width": 1400, "height": 1000})
    opened.set_default_timeout(1000 * PATIENCE_S)
    try:
        opened.goto(address)
        opened.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
        yield opened
    finally:
        show_everything(opened)
        opened.screenshot(path=folder / "browser" / f"{request.node.name}.png")
        opened.close()


def jupyter_folders(folder: Path) -> dict[str, str]:
    """Variables that keep Jupyter from reading or writing this user's own settings."""
    for name, values in SETTINGS.items():
        paths.write_atomic(folder / "settings" / name, json.dumps(values))
    return {
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
        "IPYTHONDIR": str(folder / "ipython"),
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((lab.HOST, 0))
        return probe.getsockname()[1]


def printed_address(server: subprocess.Popen, log: Path) -> str:
    """Waits for the line `Open: http://…`."""
    last = time.monotonic() + PATIENCE_S
    while time.monotonic() < last and server.poll() is None:
        if found := re.search(r"^Open: (\S+)$", log.read_text(encoding="utf-8"), re.MULTILINE):
            return found[1]
        time.sleep(0.2)
    pytest.fail(f"labkit lab printed no address:\n{log.read_text(encoding='utf-8')}")


def show_everything(page) -> None:
    """Makes the window as high as the notebook, so that a picture has all of it."""
    hidden = page.evaluate(
        """() => Math.max(0, ...[...document.querySelectorAll('.jp-WindowedPanel-outer')]
            .map(panel => panel.scrollHeight - panel.clientHeight))"""
    )
    page.set_viewport_size({"width": 1400, "height": 1000 + hidden})
    page.locator(".jp-Cell").first.scroll_into_view_if_needed()
