"""Makes the environment of Triton Inference Server: `python3 -m labkit doctor --fix triton-server`.

It is one of its own, `.venv-triton-server/`, since its Python is the system's, which need not be
the one of `.venv`. Of nvidia-pytriton only the wheel's contents are used: the server's program
and the Python backend. Standard library only; safe to interrupt, and to run twice.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from labkit import environment, paths
from labkit.console import SetupError, Stages
from labkit.environment import again
from labkit.fleet.triton_server import pythons
from labkit.paths import write_atomic
from labkit.pip_run import pip

# msgspec and pyzmq as in requirements.txt: both ends of a socket read the same messages. Under
# numpy 2 this backend gives a model [1, 1, 1] where [1, 2, 3] was sent, and says nothing.
PACKAGES = ("nvidia-pytriton==0.7.0", "numpy==1.26.4", "msgspec==0.23.0", "pyzmq==27.3.0")
DOWNLOAD_MB, DISK_MB = 80, 250
COMMAND = "doctor --fix triton-server"
CANT = "Triton Inference Server can't be installed"
INSTEAD = (
    "Notebook 09 and `bench triton-server --stored` show the stored result instead, "
    "with its date and machine."
)


def venv() -> Path:
    """The environment, whether it is there yet or not."""
    return paths.repo_root() / ".venv-triton-server"


def stamp_file() -> Path:
    """What the last finished installation was of; absent while one is under way."""
    return venv() / "labkit-setup.json"


def wanted_stamp() -> dict:
    return {"root": str(paths.repo_root()), "packages": [*PACKAGES]}


def read_stamp() -> dict:
    try:
        found = json.loads(stamp_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def is_ready() -> bool:
    """Whether it is installed for this very checkout, and answered when that was done."""
    stamp = read_stamp()
    there = environment.venv_python(venv()).exists() and program().exists()
    return there and {key: stamp.get(key) for key in wanted_stamp()} == wanted_stamp()


def version() -> str:
    """Of the installed server, "2.51.0" say; "" where none is."""
    return read_stamp().get("version", "") if is_ready() else ""


def why_not() -> str:
    """Why there is no server to be measured, and the remedy; "" where there is one."""
    if is_ready():
        return ""
    refused = pythons.refused_here()
    if refused:
        return f"{refused}."
    return f"Triton Inference Server isn't installed; {again(COMMAND)} does that."


def site_packages() -> Path:
    """Where the environment's packages are. SetupError where it has no such folder."""
    found = environment.site_packages(venv())
    if not found:
        raise SetupError(CANT, f"{venv()} has no site-packages", again(COMMAND))
    return found[0]


def program() -> Path:
    """The server's program."""
    found = [*environment.site_packages(venv()), venv()]
    return found[0] / "pytriton" / "tritonserver" / "bin" / "tritonserver"


def backends() -> Path:
    """The folder of backends as the server wants it: the library and its program together."""
    return venv() / "backends"


def ensure(say: Callable[[str], None] = print, *, repair: bool = False) -> None:
    """Installs what isn't there yet, and shows how far it is. Raises SetupError.

    `repair` looks at every stage, whatever an earlier run has left.
    """
    if repair or not is_ready():
        with environment.alone(say):
            if repair or not is_ready():  # another process made it while this one waited
                set_up(say)
    say(f"Triton Inference Server {version()} is installed in {venv()}")


def set_up(say: Callable[[str], None]) -> None:
    """All stages, in order; writes the stamp at the end."""
    python = suitable_python()
    refuse_full_disk()
    say(f"Installing Triton Inference Server in {venv()}, with {python.path} ({python.release})")
    say(f"      about {DOWNLOAD_MB} MB to download, {DISK_MB} MB on disk")
    stages = Stages(3)
    with stages.stage("Python environment"):
        make_venv(python)
    with stages.stage("server") as waiting:
        arguments = ["install", "--no-deps", *PACKAGES]
        pip(arguments, waiting, "Triton Inference Server", again(COMMAND), venv())
        link(python)
    with stages.stage("check") as waiting:
        waiting("the server starts, loads a model and answers")
        found = check()
    stamp = {**wanted_stamp(), "version": found, "python": python.release}
    write_atomic(stamp_file(), json.dumps(stamp, indent=1) + "\n")
    say(stages.table())


def suitable_python() -> pythons.Probe:
    """Raises SetupError where there is none, or no server for this system."""
    refused = pythons.refused_here()
    if refused:
        raise SetupError(CANT, f"{refused}.\n     {INSTEAD}", again("bench triton-server --stored"))
    found = pythons.look()
    chosen = pythons.choose(found)
    if chosen is None:
        reason, remedy = pythons.remedy(found)
        raise SetupError(CANT, f"{reason}.\n     {INSTEAD}", remedy)
    return chosen


def refuse_full_disk() -> None:
    free = shutil.disk_usage(paths.repo_root()).free / 1e6
    if free < DISK_MB and not program().exists():
        lacking = f"{DISK_MB} MB are needed and {free:.0f} MB are free"
        raise SetupError(CANT, lacking, f"delete something, then {again(COMMAND)}")


def make_venv(python: pythons.Probe) -> None:
    """An environment of that Python; what an interrupted run left is kept where it is whole."""
    stamp_file().unlink(missing_ok=True)
    own = environment.venv_python(venv())
    if not environment.works(own) or release_of(own) != python.release:
        shutil.rmtree(venv(), ignore_errors=True)
        status, said = environment.quiet([python.path, "-m", "venv", str(venv())])
        if status != 0:
            raise SetupError(CANT, environment.last_line(said), again(COMMAND))
    for folder in environment.site_packages(venv()):
        for info in environment.half_installed(folder):
            shutil.rmtree(info, ignore_errors=True)


def release_of(python: Path) -> str:
    code = "import sys; print('.'.join(map(str, sys.version_info[:3])))"
    return environment.quiet([str(python), "-c", code])[1].strip()


def link(python: pythons.Probe) -> None:
    """Puts the backend together for this Python, and lets its models import labkit."""
    packages = site_packages()
    root = packages / "pytriton" / "tritonserver"
    stub = "triton_python_backend_stub"
    minor = f"{python.version[0]}.{python.version[1]}"
    folder = backends() / "python"
    shutil.rmtree(backends(), ignore_errors=True)
    folder.mkdir(parents=True)
    program = root / "python_backend_stubs" / minor / stub
    for part in [*(root / "backends" / "python").glob("*.*"), program]:
        (folder / part.name).symlink_to(part)
    # The server clears PYTHONPATH for its models; a .pth file is what remains.
    (packages / "labkit.pth").write_text(f"{paths.repo_root()}\n", encoding="utf-8")


def check() -> str:
    """Starts the server, loads a model and asks it; returns the server's version.

    Raises SetupError.
    """
    from labkit.fleet.triton_server import echo

    try:
        return echo.answer_once()
    except (OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise SetupError(
            "Triton Inference Server was installed, and doesn't answer", reason, again(COMMAND)
        ) from None
