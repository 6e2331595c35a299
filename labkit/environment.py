"""The checkout's own Python environment, `.venv`: where it is, and how it is made and entered.

Standard library only.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labkit import paths
from labkit.console import SetupError

LEADS_ASTRAY = {"PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV"}
LEADS_ASTRAY |= {"PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_DRY_RUN"}

# Linux' malloc asks for pages of 2 MB, if there are any: a step walks through all weights, and the
# processor finds 270 such pages sooner than 138,000 small ones. 5 to 25% of a step, read at start.
LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"} if sys.platform == "linux" else {}

CANT_MAKE = "the environment .venv can't be made"


def venv_dir() -> Path:
    """The environment of this checkout."""
    return paths.repo_root() / ".venv"


def venv_python(venv: Path | None = None) -> Path:
    """The Python inside an environment, whether it is there yet or not."""
    return (venv or venv_dir()) / (
        "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    )


def site_packages(venv: Path | None = None) -> list[Path]:
    """The folders of an environment that hold what pip installs."""
    return [*(venv or venv_dir()).glob("[Ll]ib/**/site-packages")]


def in_venv() -> bool:
    """Whether this process runs inside the checkout's own `.venv`."""
    return Path(sys.prefix).resolve() == venv_dir().resolve()


def again(arguments: str) -> str:
    """The command line that starts labkit once more, as it was started now."""
    if sys.platform == "win32":
        python = "py" if shutil.which("py") else "python"
    else:
        python = "python3" if in_venv() else Path(sys.executable).name
    return f"{python} -m labkit {arguments}"


def clean(variables: dict[str, str]) -> dict[str, str]:
    """`variables` without what would lead pip or Python out of `.venv`, and in UTF-8.

    An active environment (venv, conda) is left behind. What is set here wins over pip's own
    configuration file, where `user = true` may stand.
    """
    kept = {name: value for name, value in variables.items() if name not in LEADS_ASTRAY}
    kept |= {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONNOUSERSITE": "1"}
    return kept | {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}


def start(command: list[str]) -> subprocess.Popen:
    """Starts a program in the checkout, its words on one pipe; nothing to read from."""
    return subprocess.Popen(
        command,
        cwd=paths.repo_root(),
        env=clean(dict(os.environ)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def quiet(command: list[str]) -> tuple[int, str]:
    """Runs a program to its end; returns its status and all that it said."""
    try:
        with start(command) as process:
            said = process.stdout.read()
    except OSError as error:
        return 127, str(error)
    return process.returncode, said


def inside(module: str, arguments: list[str]) -> int:
    """Runs a module (or "-c" and code) with the Python of `.venv`; returns its status."""
    start = [module] if module == "-c" else ["-m", module]
    command = [str(venv_python()), *start, *arguments]
    variables = {**LARGE_PAGES, **clean(dict(os.environ))}
    process = subprocess.Popen(command, cwd=paths.repo_root(), env=variables)
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        return wait(process)
    finally:
        signal.signal(signal.SIGTERM, before)


def become(module: str, arguments: list[str]) -> int:
    """As `inside`, but in the place of this process, where the system can do that: who ends or
    kills this one then means the module itself, and nothing is left behind."""
    if sys.platform == "win32":
        return inside(module, arguments)
    os.chdir(paths.repo_root())
    command = [str(venv_python()), "-m", module, *arguments]
    sys.stdout.flush()
    os.execve(command[0], command, {**LARGE_PAGES, **clean(dict(os.environ))})


def wait(process: subprocess.Popen) -> int:
    """Waits for a child that has got Ctrl-C as well, and decides by itself when to end."""
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue


def last_line(said: str) -> str:
    """Where the reason of a failure stands."""
    return (said.strip().splitlines() or ["it stopped without saying why"])[-1]


def works(python: Path) -> bool:
    """Whether this Python runs, is new enough, and has pip."""
    return (
        quiet([str(python), "-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"])[0] == 0
    )


def make_venv(command: str) -> None:
    """A `.venv` whose Python runs and has pip; one that hasn't is made anew.

    Raises SetupError, with `command` in its remedy.
    """
    if works(venv_python()):
        return
    shutil.rmtree(venv_dir(), ignore_errors=True)
    make = [sys.executable, "-m", "venv", "--clear", str(venv_dir())]
    _, said = quiet(make)
    if works(venv_python()):
        return
    # Debian keeps what puts pip into an environment in a package of its own; this Python's own
    # pip can do the same.
    quiet([*make, "--without-pip"])
    quiet([sys.executable, "-m", "pip", "--python", str(venv_python()), "install", "pip"])
    if works(venv_python()):
        return
    if shutil.which("apt-get"):
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        reason = "this Python can't put pip into an environment, and has no pip of its own"
        raise SetupError(CANT_MAKE, reason, f"sudo apt-get install {package} && {command}")
    raise SetupError(CANT_MAKE, last_line(said), command)


def half_installed(folder: Path) -> list[Path]:
    """The `*.dist-info` folders in `folder` of packages that pip was killed while unpacking.

    pip unpacks a package, then writes INSTALLER, and RECORD last of all: a RECORD that doesn't
    list INSTALLER is the one that came in the wheel. pip itself takes such a package for whole.
    """
    found = []
    for info in folder.glob("*.dist-info"):
        try:
            record = (info / "RECORD").read_text(encoding="utf-8", errors="replace")
        except OSError:
            record = ""
        if f"{info.name}/INSTALLER" not in record.replace("\\", "/"):
            found.append(info)
    return found


def forget_half_installed() -> None:
    """Takes the half-unpacked packages out of pip's sight, so that it unpacks them again."""
    for folder in site_packages():
        for info in half_installed(folder):
            shutil.rmtree(info, ignore_errors=True)


@contextmanager
def alone(tell) -> Iterator[None]:
    """Holds this checkout's set-up for one process at a time; the system frees it after a kill."""
    name = hashlib.sha256(os.fsencode(paths.repo_root())).hexdigest()[:12]
    folder = paths.cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"set-up-{name}.lock", "w", encoding="utf-8") as file:
        if not _lock(file, wait=False):
            tell("Another set-up of this checkout is running; waiting for it ...")
            while not _lock(file, wait=True):
                pass
        yield


def _lock(file, wait: bool) -> bool:
    """Tries to lock an open file until it is closed; on Windows a wait gives up after 10 s."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
