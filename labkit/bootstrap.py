"""Sets a checkout up: makes `.venv`, installs into it, fetches the model. Standard library only.

Every stage finds out by itself what is there already, so that an interrupted set-up goes on
where it was. A stamp inside `.venv` tells the next run that all is done; it then needs no
network, and a fraction of a second.
"""

import hashlib
import json
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from labkit import environment, paths, torch_build
from labkit.console import SetupError, Stages
from labkit.environment import again, venv_dir, venv_python
from labkit.model import sources
from labkit.pip_run import pip

MODEL = sources.DEFAULT_MODEL

# MB, measured on Linux, x86-64. Those of torch stand in torch_build.
PACKAGES = {"download": 330, "disk": 1490}
CHECKPOINT = {"download": 93, "disk": 542}
EXTRAS = {"test": {"download": 171, "disk": 547}, "ray": {"download": 104, "disk": 330}}


def ensure_environment(
    extra: str | None = None,
    *,
    command: str = "lab",
    repair: bool = False,
    say: Callable[[str], None] = print,
) -> Path:
    """Sets up whatever isn't; returns the Python of `.venv`.

    `extra`: one of pyproject.toml ("test", "ray") or None. `command`: what the learner typed after
    `python3 -m labkit`, for the remedies. `repair` looks at every stage, whatever the stamp says.
    Raises SetupError.
    """
    if repair or not is_ready(extra):
        with environment.alone(say):
            if repair or not is_ready(extra):  # another process made it while this one waited
                set_up(wanted_stamp(extra), again(command), say)
    return venv_python()


def is_ready(extra: str | None) -> bool:
    """Whether a set-up for this very checkout came to its end, and nothing has changed since."""
    done = read_stamp() == wanted_stamp(extra) and venv_python().exists()
    return done and sources.status(MODEL)[0] == "ready"


def stamp_file() -> Path:
    """What the last finished set-up was for."""
    return venv_dir() / "labkit-setup.json"


def read_stamp() -> dict:
    """The stamp; empty when no set-up has come to its end."""
    try:
        return dict(json.loads(stamp_file().read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def wanted_stamp(extra: str | None) -> dict:
    """The stamp of a finished set-up. Extras add up; a checkout that was moved is set up anew."""
    digest = hashlib.sha256()
    for name in ("requirements.txt", "pyproject.toml"):
        digest.update((paths.repo_root() / name).read_bytes())
    extras = sorted({*read_stamp().get("extras", []), *([extra] if extra else [])})
    root = str(paths.repo_root())
    return {"root": root, "requirements": digest.hexdigest(), "extras": extras, "model": MODEL}


def set_up(stamp: dict, command: str, say: Callable[[str], None]) -> None:
    """All stages, in order; writes the stamp at the end. `command` is the remedy of a failure."""
    say(f"Setting up in {venv_dir()} (Python {platform.python_version()})")
    stages = Stages(5)
    with stages.stage("Python environment"):
        environment.make_venv(command)
        stamp_file().unlink(missing_ok=True)
        environment.forget_half_installed()
    choice = torch_choice()
    say_sizes(choice, stamp["extras"], command, say)

    def install(what: str, *arguments: str) -> None:
        pip(["install", *arguments], waiting, what, command)

    with stages.stage("torch") as waiting:
        install_torch(choice, install, waiting)
    with stages.stage("packages") as waiting:
        install("the packages", "-r", "requirements.txt", "setuptools>=68")
        itself = f".[{','.join(stamp['extras'])}]" if stamp["extras"] else "."
        install("labkit", "--no-build-isolation", "--editable", itself)
    with stages.stage("model") as waiting:
        fetch_model(command, waiting)
    with stages.stage("check") as waiting:
        waiting("the first import of torch and JupyterLab")
        check(command)
    paths.write_atomic(stamp_file(), json.dumps(stamp, indent=1) + "\n")
    say(stages.table())


def torch_version() -> str:
    """The pin in requirements.txt."""
    lines = (paths.repo_root() / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return next(line for line in lines if line.startswith("torch==")).removeprefix("torch==")


def torch_choice() -> torch_build.Choice:
    """Which torch to install, from what this machine has and what it can reach."""
    version, system, gpu = torch_version(), platform.system(), torch_build.read_gpu()
    cpu_only = system == "Linux" and torch_build.refuse(gpu) is not None
    for folder in environment.site_packages():
        for info in folder.glob(f"torch-{version}*.dist-info"):
            if cpu_only or system != "Linux" or "+cpu" not in info.name:
                return torch_build.keep(info.name.removesuffix(".dist-info"))
    probe = ["install", "--dry-run", "--no-index", "--no-deps", "--quiet", f"torch=={version}+cpu"]
    pip_probe = [str(venv_python()), "-m", "pip", *probe]
    in_folder = cpu_only and environment.quiet(pip_probe)[0] == 0
    index = cpu_only and not in_folder and torch_build.reachable()
    return torch_build.choose(version, system, gpu, in_folder, index)


def say_sizes(choice: torch_build.Choice, extras: list[str], command: str, say) -> None:
    """Says what will be fetched and written; raises SetupError when the disk is too small."""
    source = choice.sources[0]
    largest = max((EXTRAS[name] for name in extras), key=lambda part: part["disk"], default=None)
    parts = [PACKAGES, CHECKPOINT, *([largest] if largest else [])]  # test has all of ray
    download = (source.download_mb + sum(part["download"] for part in parts)) / 1000
    disk = (source.disk_mb + sum(part["disk"] for part in parts)) / 1000
    files = (file for folder in environment.site_packages() for file in folder.rglob("*"))
    there = sum(file.lstat().st_size for file in files) / 1e9
    free = shutil.disk_usage(venv_dir()).free / 1e9
    less = ", less what an earlier run has left" if there > 0.1 else ""
    say(f"      torch: {choice.build} from {source.name}: {choice.why}")
    say(f"      about {download:.1f} GB to download, {disk:.1f} GB on disk{less}")
    if free + there < disk:
        lacking = f"{disk:.1f} GB are needed and {free + there:.1f} GB are free"
        raise SetupError("the disk is too small", lacking, command)


def install_torch(choice: torch_build.Choice, install, waiting: Callable[[str], None]) -> None:
    """Installs torch from the first source that has it; the last one's failure is the failure."""
    for number, source in enumerate(choice.sources, 1):
        try:
            return install("torch", *source.arguments) if source.arguments else None
        except SetupError:
            if number == len(choice.sources):
                raise
            waiting(f"{source.name} hasn't got it; trying {choice.sources[number].name}")
    return None


def fetch_model(command: str, waiting: Callable[[str], None]) -> None:
    """Puts the default model into the user's cache, unless it is there."""
    last = ""
    fetch = [str(venv_python()), "-m", "labkit.model.sources", "fetch", MODEL]
    with environment.start(fetch) as process:
        for line in process.stdout:
            word, *rest = line.split(maxsplit=3)
            if word == "progress" and len(rest) == 3:
                waiting(rest[2].strip())
            else:
                last = line.strip().removeprefix("error ")
    if process.returncode != 0:
        reason = last or "it stopped without saying why"
        raise SetupError(f"the model {MODEL} can't be fetched", reason, command)


def check(command: str) -> None:
    """Imports what the notebooks use, in a fresh process."""
    code = "import labkit, torch, transformers, jupyterlab, ipykernel, matplotlib"
    status, said = environment.quiet([str(venv_python()), "-c", code])
    if status != 0:
        reason = environment.last_line(said)
        raise SetupError("what was installed can't be imported", reason, command)
