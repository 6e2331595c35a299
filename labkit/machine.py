"""Reads the facts that the doctor judges: this Python, this machine, this checkout.

Standard library only. A fact that can't be had is None or False, not an exception.
"""

import http.client
import importlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from labkit import environment

CGROUP = Path("/sys/fs/cgroup")  # a container's limits

# Run by a Python: what it is, whose labkit it imports, which Python Jupyter starts from it.
PROBE = """
import importlib.util, json, os, sys
sys.path = [folder for folder in sys.path if folder]  # less the folder this is run in
os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # as `labkit lab` does
labkit = importlib.util.find_spec("labkit")
told = {"prefix": sys.prefix, "labkit": labkit and labkit.origin, "kernel": None}
try:
    from jupyter_client import KernelManager
    told["kernel"] = KernelManager(kernel_name="python3").format_kernel_cmd()[0]
finally:
    print(json.dumps(told))
"""


UNKNOWN = {"prefix": None, "labkit": None, "kernel": None}


def ask(python: str) -> dict:
    """What `PROBE` tells in that Python; `UNKNOWN` when it doesn't run."""
    _, said = environment.quiet([python, "-c", PROBE])
    told = [line for line in said.splitlines() if line.startswith('{"prefix": ')]
    return json.loads(told[0]) if told else UNKNOWN


def prefix_of(kernel: str | None, told: dict) -> str | None:
    """The environment of the Python `kernel`; `told` is what this very Python said."""
    if kernel is None or kernel == sys.executable:
        return told["prefix"]
    return ask(kernel)["prefix"]


def bits() -> int:
    """64, or 32: torch has no builds for such a Python."""
    return 64 if sys.maxsize > 2**32 else 32


def model_status() -> tuple[str, str]:
    """State and detail of the default model, every byte compared: 0.5 to 1 s."""
    from labkit.model import sources

    return sources.status(sources.DEFAULT_MODEL, quick=False)


def has_compiler() -> bool:
    """Whether the kernel language finds a C compiler, which it needs on a GPU."""
    return "CC" in os.environ or any(map(shutil.which, ("gcc", "clang")))


def port_use(port: int) -> tuple[bool, bool]:
    """Whether a port of this machine is free, and whether Jupyter has it."""
    from labkit.lab import is_free

    free = is_free(port)
    return free, not free and is_jupyter(port)


def installed_version(name: str) -> str | None:
    """Of a package in this Python; None when it is missing."""
    try:
        return importlib.metadata.version(name)
    except (importlib.metadata.PackageNotFoundError, KeyError):
        return None


def pins(requirements: str) -> list:
    """The lines of a requirements file that apply to this platform, as packaging.Requirement.

    Without `packaging`, which what we pin depends on, or pip, which brings it too: empty.
    """
    for module in ("packaging.requirements", "pip._vendor.packaging.requirements"):
        try:
            requirement = importlib.import_module(module).Requirement
            break
        except ImportError:
            continue
    else:
        return []
    lines = [line.split("#")[0].strip() for line in requirements.splitlines()]
    parsed = [requirement(line) for line in lines if line]
    return [pin for pin in parsed if pin.marker is None or pin.marker.evaluate()]


def wrong_packages(pinned: list, installed: Callable[[str], str | None]) -> list[str]:
    """A phrase for every pin that `installed` (from name to version) doesn't satisfy.

    "2.13.0+cpu" satisfies "==2.13.0".
    """
    wrong = []
    for pin in pinned:
        version = installed(pin.name)
        if version is None:
            wrong.append(f"{pin.name} is missing")
        elif not pin.specifier.contains(version, prereleases=True):
            wrong.append(f"{pin.name} {version} (pinned {pin.specifier})")
    return wrong


def half_unpacked(venv: Path) -> list[str]:
    """The packages that pip was killed while unpacking."""
    folders = environment.site_packages(venv)
    infos = [info for folder in folders for info in environment.half_installed(folder)]
    return [f"{info.name.split('-')[0]} is half unpacked" for info in infos]


def torch_build() -> str | None:
    """The CUDA version that torch is built for, "cpu", or None without torch; loads no torch."""
    found = importlib.util.find_spec("torch")
    if found is None or not found.origin:
        return None
    version = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    cuda = re.search(r"^cuda\b.*= '([\d.]+)'", version, re.MULTILINE)
    return cuda.group(1) if cuda else "cpu"


def cuda_starts() -> bool:
    """Whether the CUDA driver starts and shows a GPU; asked in a process of its own."""
    code = "import ctypes, sys; sys.exit(ctypes.CDLL('libcuda.so.1').cuInit(0) != 0)"
    return environment.quiet([sys.executable, "-c", code])[0] == 0


def cores(cgroup: Path = CGROUP) -> float:
    """The cores that this process may use; a container may have a fraction of one."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        count = os.cpu_count() or 1
    quota, _, period = read(cgroup / "cpu.max").partition(" ")
    return min(count, int(quota) / int(period)) if quota.isdigit() else count


def memory(cgroup: Path = CGROUP) -> tuple[float | None, float | None]:
    """Bytes in all and free, of the machine or its container; (None, None) without psutil."""
    try:
        import psutil
    except ImportError:
        return None, None
    machine = psutil.virtual_memory()
    limit = read(cgroup / "memory.max")
    if not limit.isdigit():
        return machine.total, machine.available
    used = int(read(cgroup / "memory.current") or 0)
    cache = re.search(r"^inactive_file (\d+)", read(cgroup / "memory.stat"), re.MULTILINE)
    free = int(limit) - used + (int(cache.group(1)) if cache else 0)  # cached files give way
    return min(machine.total, int(limit)), min(machine.available, free)


def read(path: Path) -> str:
    """The text of a small file; empty when there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def disk_free(*folders: Path) -> dict[str, int]:
    """Bytes free where each of the folders lies, or will lie."""
    free = {}
    for folder in folders:
        there = next(place for place in (folder, *folder.resolve().parents) if place.exists())
        free[str(folder)] = shutil.disk_usage(there).free
    return free


def copies(notebooks: Path, my_dir: Path) -> tuple[list[str], int]:
    """The learner's copies that `notebooks` is ahead of, and how many copies there are in all."""
    names = [
        found.relative_to(notebooks)
        for found in sorted([*notebooks.glob("*.ipynb"), *notebooks.glob("ko/*.ipynb")])
    ]
    made = [name for name in names if (my_dir / name).exists()]
    behind = [
        name.as_posix()
        for name in names
        if name not in made or read(my_dir / ".base" / name) != read(notebooks / name)
    ]
    return (behind if made else []), len(made)


def is_jupyter(port: int) -> bool:
    """Whether what listens on this port of this machine answers as Jupyter's web server does."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/api")
        return "Tornado" in (connection.getresponse().getheader("Server") or "")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
