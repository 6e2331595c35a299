"""Makes `.venv`, installs into it, fetches the model. Standard library only.

Every stage finds out by itself what is there already, so that an interrupted set-up goes on
where it was. A stamp inside `.venv` tells the next run that all is done; it then needs no
network, and a fraction of a second.
"""

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from labkit import paths, torch_build
from labkit.console import SetupError, Stages
from labkit.pip_run import pip

MODEL = "smollm2-135m"

# Measured on Linux, x86-64: what is fetched and what it becomes, in MB, torch left out.
PACKAGES = {"download": 320, "disk": 1350}
MODEL_SIZE = {"download": 100, "disk": 650}
TEST_TOOLS = {"download": 70, "disk": 220}

OURS = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "__PYVENV_LAUNCHER__", "VIRTUAL_ENV")
PIP_ELSEWHERE = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_DRY_RUN")


def venv_dir() -> Path:
    """The environment of this checkout."""
    return paths.repo_root() / ".venv"


def venv_python(venv: Path | None = None) -> Path:
    """The Python inside an environment, whether it is there yet or not."""
    folder = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"
    return (venv or venv_dir()) / folder


def in_venv() -> bool:
    """Whether this process runs inside the checkout's own `.venv`."""
    return Path(sys.prefix).resolve() == venv_dir().resolve()


def again(arguments: str) -> str:
    """The command line that starts labkit once more, as it was started now."""
    python = "py" if sys.platform == "win32" and not in_venv() else Path(sys.executable).name
    return f"{python} -m labkit {arguments}"


def clean_environment(environment: dict[str, str]) -> dict[str, str]:
    """`environment` without what would lead pip or Python out of `.venv`, and in UTF-8.

    An active environment (venv, conda) is left behind. Empty values win over pip's own
    configuration file, where `user = true` or `target = …` may stand.
    """
    kept = {name: value for name, value in environment.items() if name not in OURS}
    kept |= dict.fromkeys(PIP_ELSEWHERE, "")
    kept |= {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "PYTHONNOUSERSITE": "1"}
    return kept | {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8:backslashreplace"}


def environment() -> dict[str, str]:
    """The variables for every process that is started inside `.venv`."""
    return clean_environment(dict(os.environ))


def ensure_environment(
    extra: str | None = None,
    *,
    command: str = "lab",
    repair: bool = False,
    say: Callable[[str], None] = print,
) -> Path:
    """Sets everything up that isn't; returns the Python of `.venv`.

    `extra`: an extra of pyproject.toml, "test" or None. `command`: what the learner typed after
    `python3 -m labkit`, for the remedies. `repair` looks at every stage, whatever the stamp says.
    Raises SetupError.
    """
    stamp = read_stamp()
    extras = sorted({*stamp.get("extras", []), *([extra] if extra else [])})
    python = venv_python()
    if not repair and stamp == wanted_stamp(extras):
        return python
    say(f"Setting up in {venv_dir()} (Python {platform.python_version()})")
    stages = Stages(5)
    with stages.stage("Python environment"):
        make_venv(again(command))
    choice = torch_choice(python)
    say_sizes(choice, extras, again(command), say)
    installer = Installer(python, again(command))
    with stages.stage(f"torch, {choice.build.upper()} build") as waiting:
        installer.torch(choice, waiting)
    with stages.stage("packages") as waiting:
        installer.packages(extras, waiting)
    with stages.stage("model") as waiting:
        fetch_model(python, again(command), waiting)
    with stages.stage("check") as waiting:
        waiting("the first import of torch")
        check(python, again(command))
    paths.write_atomic(stamp_file(), json.dumps(wanted_stamp(extras), indent=1) + "\n")
    say(stages.table())
    return python


def stamp_file() -> Path:
    return venv_dir() / "labkit-setup.json"


def read_stamp() -> dict:
    """What the last set-up that came to its end was for; empty when there was none."""
    try:
        stamp = json.loads(stamp_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) and venv_python().exists() else {}


def wanted_stamp(extras: list[str]) -> dict:
    """What the stamp says when nothing is left to do. A checkout that was moved is set up anew."""
    digest = hashlib.sha256()
    for name in ("requirements.txt", "pyproject.toml"):
        digest.update((paths.repo_root() / name).read_bytes())
    root = str(paths.repo_root())
    return {"root": root, "requirements": digest.hexdigest(), "extras": extras, "model": MODEL}


def make_venv(command: str) -> None:
    """`.venv` with a Python that runs and has pip; one that hasn't is made anew."""
    if works(venv_python()):
        return
    if venv_dir().exists():
        shutil.rmtree(venv_dir(), ignore_errors=True)
    has_pip = importlib.util.find_spec("ensurepip") is not None
    options = ["--clear"] if has_pip else ["--clear", "--without-pip"]
    made = quiet([sys.executable, "-m", "venv", *options, str(venv_dir())])
    if made.returncode == 0 and not has_pip:  # Debian keeps it in a package of its own
        target = ["--python", str(venv_python()), "install", "pip"]
        quiet([sys.executable, "-m", "pip", *target])
    if not works(venv_python()):
        apt = sys.platform == "linux" and not has_pip
        reason = "this Python lacks ensurepip" if apt else last_line(made)
        remedy = f"sudo apt install python3-venv && {command}" if apt else command
        raise SetupError("the environment .venv can't be made", reason, remedy)


def works(python: Path) -> bool:
    """Whether this Python runs, is new enough, and has pip."""
    code = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        return quiet([str(python), "-c", code]).returncode == 0
    except OSError:
        return False


def quiet(command: list[str]) -> subprocess.CompletedProcess:
    """Runs a command to its end, its output kept as text."""
    return subprocess.run(
        command,
        cwd=paths.repo_root(),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    )


def last_line(done: subprocess.CompletedProcess) -> str:
    """The last line of a command's output, where the reason of a failure stands."""
    return (done.stdout.strip().splitlines() or [f"status {done.returncode}, no words"])[-1]


def torch_version() -> str:
    """torch's pin in requirements.txt."""
    lines = (paths.repo_root() / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch==")).removeprefix("torch==")


def torch_choice(python: Path) -> torch_build.Choice:
    """Asks this machine what `torch_build.choose` needs to know."""
    version, system, gpu = torch_version(), platform.system(), torch_build.read_gpu()
    search = system == "Linux" and torch_build.refuse(gpu) is not None
    wheel = ["download", "--no-index", "--no-deps", "--quiet", f"torch=={version}+cpu"]
    probe = ["install", "--dry-run", "--ignore-installed", *wheel[1:]]
    in_folder = search and quiet([str(python), "-m", "pip", *probe]).returncode == 0
    index = search and not in_folder and torch_build.reachable()
    return torch_build.choose(version, system, gpu, in_folder, index)


def say_sizes(choice: torch_build.Choice, extras: list[str], command: str, say) -> None:
    """Says what will be downloaded and written; raises SetupError when the disk is too small."""
    parts = [PACKAGES, MODEL_SIZE, *([TEST_TOOLS] if "test" in extras else [])]
    source = choice.sources[0]
    download = (source.download_mb + sum(part["download"] for part in parts)) / 1000
    disk = (source.disk_mb + sum(part["disk"] for part in parts)) / 1000
    free = shutil.disk_usage(paths.repo_root()).free / 1e9
    say(f"      torch: {choice.build.upper()} build from {source.name}: {choice.why}")
    say(f"      about {download:.1f} GB to download, {disk:.1f} GB on disk ({free:.0f} GB free)")
    if free < disk * 0.5 and not read_stamp():
        raise SetupError("the disk is too small", f"{free:.1f} of {disk:.1f} GB are free", command)


class Installer:
    """pip inside `.venv`, its words kept in `.venv/setup.log`."""

    def __init__(self, python: Path, command: str):
        self._python, self._command = python, command

    def torch(self, choice: torch_build.Choice, waiting: Callable[[str], None]) -> None:
        """Installs torch from the first source that has it."""
        *others, last = choice.sources
        for source in others:
            try:
                return self._pip("torch", ["install", *source.arguments], waiting)
            except SetupError:
                waiting(f"not from {source.name}; trying the next")
        return self._pip("torch", ["install", *last.arguments], waiting)

    def packages(self, extras: list[str], waiting: Callable[[str], None]) -> None:
        """Installs the pins, then labkit itself in editable form."""
        pins = ["-r", "requirements.txt", "setuptools>=68"]
        self._pip("the packages", ["install", *pins], waiting)
        itself = f".[{','.join(extras)}]" if extras else "."
        editable = ["install", "--no-build-isolation", "--editable", itself]
        self._pip("labkit", editable, waiting)

    def _pip(self, name: str, arguments: list[str], waiting: Callable[[str], None]) -> None:
        log = venv_dir() / "setup.log"
        pip(
            self._python,
            arguments,
            env=environment(),
            cwd=paths.repo_root(),
            log=log,
            waiting=waiting,
            what=f"{name} can't be installed",
            command=self._command,
        )


def fetch_model(python: Path, command: str, waiting: Callable[[str], None]) -> None:
    """Puts the default model into the user's cache, unless it is there."""
    fetch = [str(python), "-m", "labkit.model.sources", "fetch", MODEL]
    said = []
    with subprocess.Popen(
        fetch,
        cwd=paths.repo_root(),
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        for line in process.stdout:
            word, *rest = line.split(maxsplit=3)
            if word == "progress" and len(rest) == 3:
                waiting(f"{rest[2].strip()} ({rest[0]} of {rest[1]})")
            else:
                said.append(line.strip())
    if process.returncode != 0:
        reason = said[-1] if said else "no words"
        raise SetupError(f"the model {MODEL} can't be fetched", reason, command)


def check(python: Path, command: str) -> None:
    """Imports what the notebooks use, in a fresh process."""
    code = "import labkit, torch, transformers, jupyterlab, ipykernel, matplotlib"
    done = quiet([str(python), "-c", code])
    if done.returncode != 0:
        raise SetupError("the installed packages don't import", last_line(done), command)
