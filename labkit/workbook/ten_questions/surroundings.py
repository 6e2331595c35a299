"""The machine and the versions with which the report is written; None for what can't be had."""

import os
import platform
from datetime import date

import labkit
from labkit import doctor, machine, torch_build

PACKAGES = ("torch", "triton", "transformers", "numba", "numpy", "matplotlib", "jupyterlab")


def facts() -> dict[str, str | None]:
    """Names (English in both languages, as in the doctor's table) and what is found."""
    total, _ = doctor.attempt(machine.memory, (None, None))
    gpu = doctor.attempt(torch_build.read_gpu, None)
    build = doctor.attempt(machine.torch_build, None)
    found = {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": doctor.attempt(processor, None),
        "cores": doctor.attempt(lambda: f"{machine.cores():g}", None),
        "memory": f"{total / 2**30:.1f} GiB" if total else None,
        "GPU": f"{gpu.name}, driver {gpu.driver}" if gpu else "none",
        "LABKIT_DEVICE": os.environ.get("LABKIT_DEVICE") or "not set: the GPU if there is one",
        "python": platform.python_version(),
        "labkit": labkit.__version__,
        "torch build": build and (build if build == "cpu" else f"CUDA {build}"),
    }
    versions = {name: machine.installed_version(name) for name in PACKAGES}
    return found | {name: version for name, version in versions.items() if version}


def processor() -> str | None:
    """The processor's name, as the system tells it."""
    told = machine.read(machine.Path("/proc/cpuinfo"))
    names = [line.split(":", 1)[1].strip() for line in told.splitlines() if "model name" in line]
    return names[0] if names else platform.processor() or None


def today() -> str:
    return date.today().isoformat()
