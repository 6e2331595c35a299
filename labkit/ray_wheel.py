"""Whether Ray can be installed here: it comes as a wheel, and not for every machine."""

import platform
import sys

from labkit.console import SetupError
from labkit.environment import again

PYTHONS = ((3, 10), (3, 14))  # the first and the last that Ray 2.60 has wheels for
INSTEAD = again("route --help") + "    (labkit's own router, in front of several `serve`)"


def refuse(
    system: str | None = None, machine: str | None = None, version: tuple[int, int] | None = None
) -> None:
    """Raises SetupError where there is no Ray. The arguments are this machine's, if not given."""
    system, machine = system or platform.system(), machine or platform.machine()
    version = version or sys.version_info[:2]
    what = "--replicas needs Ray, which can't be used here"
    if system == "Windows":
        why = "Ray for Windows is a beta, which labkit has not been tried with; WSL 2 is a Linux"
        raise SetupError(what, why, INSTEAD)
    if system == "Darwin" and machine == "x86_64":
        raise SetupError(what, "Ray 2.60 has no wheel for Intel Macs", INSTEAD)
    if not PYTHONS[0] <= version <= PYTHONS[1]:
        first, last, this = (".".join(map(str, one)) for one in (*PYTHONS, version))
        why = f"this is Python {this}, and Ray 2.60 has wheels for {first} to {last}"
        raise SetupError(what, why, INSTEAD)
