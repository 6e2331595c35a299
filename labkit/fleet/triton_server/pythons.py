"""Which Python of this machine can run Triton Inference Server's Python backend.

The backend starts a program that is linked with one version of Python's library, and gives it the
standard library of the `python3` that it finds: both must be of the very same release. A Python
that was built by itself (pyenv, conda) and the system's library are not. Standard library only.
"""

import json
import platform
from dataclasses import dataclass

from labkit import environment

MINORS = (11, 12)  # of the Pythons that both labkit and the backend know
CANDIDATES = ("/usr/bin/python3", *(f"/usr/bin/python3.{minor}" for minor in MINORS), "python3")
PROBE = """
import ctypes, importlib.util, json, sys
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
try:
    library = ctypes.CDLL(name)
    library.Py_GetVersion.restype = ctypes.c_char_p
    release = library.Py_GetVersion().decode().split()[0]
except OSError:
    release = ""
pip = importlib.util.find_spec("ensurepip") is not None
print(json.dumps([sys.executable, list(sys.version_info[:3]), release, pip]))
"""


@dataclass(frozen=True)
class Probe:
    """What one Python says of itself. `library`: the release of the library that it finds."""

    path: str
    version: tuple[int, ...]
    library: str
    has_pip: bool  # it can put pip into an environment

    @property
    def release(self) -> str:
        return ".".join(map(str, self.version))


def look() -> list[Probe]:
    """The Pythons of this machine, each once; changes nothing."""
    found = {}
    for name in CANDIDATES:
        status, said = environment.quiet([name, "-c", PROBE])
        if status == 0:
            path, version, library, has_pip = json.loads(environment.last_line(said))
            found.setdefault(path, Probe(path, tuple(version), library, has_pip))
    return [*found.values()]


def choose(probes: list[Probe]) -> Probe | None:
    """The first that can run the backend."""
    for one in probes:
        fits = one.version[0] == 3 and one.version[1] in MINORS
        if fits and one.has_pip and one.library == one.release:
            return one
    return None


def remedy(probes: list[Probe]) -> tuple[str, str]:
    """Why none of `probes` will do, and what to try."""
    wanted = " or ".join(f"3.{minor}" for minor in MINORS)
    fitting = [one for one in probes if one.version[0] == 3 and one.version[1] in MINORS]
    for one in fitting:
        minor = f"3.{one.version[1]}"
        system = one.path.startswith("/usr/bin/")
        if system and not one.library:
            return f"{one.path} has no shared library", f"sudo apt-get install libpython{minor}"
        if system and not one.has_pip:
            return f"{one.path} can't put pip into an environment", (
                f"sudo apt-get install python{minor}-venv"
            )
    if fitting:
        one = fitting[0]
        other = f"finds the library of {one.library}" if one.library else "has no shared library"
        why = f"{one.path} is Python {one.release}, which {other}"
    else:
        why = f"there is no Python {wanted}"
    return f"{why}; the Python backend needs the system's own", (
        f"use a system whose own Python is {wanted} (Debian 12, Ubuntu 24.04), or a container of it"
    )


def refused_by_system(system: str, machine: str) -> str:
    """Why the server can't be installed on such a system; "" where it can."""
    if system == "Windows":
        return "NVIDIA builds Triton Inference Server for Linux; on Windows WSL 2 can run it"
    if system != "Linux":
        return f"NVIDIA builds Triton Inference Server for Linux, and this is {system}"
    if machine not in ("x86_64", "aarch64"):
        return f"NVIDIA builds Triton Inference Server for x86_64 and aarch64, not for {machine}"
    return ""


def refused_here() -> str:
    """`refused_by_system` of this machine."""
    return refused_by_system(platform.system(), platform.machine())
