"""The doctor's checks: pure functions from facts to a `Line`. Standard library only."""

import os
from dataclasses import dataclass
from pathlib import Path

from labkit.environment import again
from labkit.torch_build import Gpu, refuse

OK, WARN, FAIL = "OK", "WARN", "FAIL"
LAB = again("lab")

OLDEST, NEWEST = (3, 11), (3, 14)  # Pythons that the pins have wheels for
MEMORY_GB = 2.0  # free: a notebook with the model takes 1.1, a check of an exercise runs beside it
SETUP_GB, SETUP_CUDA_GB, ROOM_GB = 3.0, 7.0, 1.0  # disk before a set-up, and after it


@dataclass(frozen=True)
class Line:
    """What one check found. `remedy` is empty only for OK; `mendable`: `--fix` does it."""

    name: str
    status: str  # OK, WARN or FAIL
    detail: str
    remedy: str = ""
    mendable: bool = False


def check_python(version: tuple[int, ...], bits: int, system: str, machine: str) -> Line:
    """The Python itself: its version, its width, and whether torch has wheels for the machine."""
    found = f"Python {'.'.join(map(str, version[:3]))}, {bits} bits, {system} {machine}"
    oldest, newest = (".".join(map(str, pair)) for pair in (OLDEST, NEWEST))
    if version[:2] < OLDEST or bits < 64:
        return Line("python", FAIL, found, f"install a 64-bit Python {oldest} to {newest}")
    if (system, machine) == ("Darwin", "x86_64"):
        remedy = "use Linux, Windows or a Mac with an M chip: torch has no build for Intel Macs"
        return Line("python", FAIL, found, remedy)
    if version[:2] > NEWEST:
        remedy = f"if a package can't be installed, use Python {newest}: it has builds of them all"
        return Line("python", WARN, found, remedy)
    return Line("python", OK, found)


def check_environment(inside: bool, exists: bool, whole: bool, prefix: str, mend: str) -> Line:
    """`inside`: of `.venv`, which `exists` or not. `whole`: this Python has all the packages."""
    if inside or whole:
        return Line("environment", OK, prefix)
    detail = f"this is {prefix}, not .venv" if exists else ".venv is missing"
    return Line("environment", FAIL, detail, mend, mendable=True)


def check_packages(wrong: list[str], total: int, mend: str) -> Line:
    """`wrong`: one phrase a package; `total`: pins that apply to this platform."""
    if total == 0:  # they can't even be read without `packaging`, which pip brings
        return Line("packages", FAIL, "none is installed", mend, mendable=True)
    if not wrong:
        return Line("packages", OK, f"all {total} as pinned in requirements.txt")
    more = f" and {len(wrong) - 4} more" if len(wrong) > 4 else ""
    return Line("packages", FAIL, ", ".join(wrong[:4]) + more, mend, mendable=True)


def check_labkit(imported: str | None, root: Path, mend: str) -> Line:
    """`imported`: the file that `import labkit` finds from any folder but the checkout."""
    if imported is None:
        return Line("labkit", FAIL, "not installed in this Python", mend, mendable=True)
    found = Path(imported).parent.parent
    if not same(found, root):
        detail = f"comes from {found}, this checkout is {root}"
        return Line("labkit", FAIL, detail, mend, mendable=True)
    return Line("labkit", OK, f"from {root}")


def check_kernel(command: str | None, prefix: str | None, ours: str, mend: str) -> Line:
    """`command`: the Python that Jupyter starts for a notebook; `prefix`: its environment, None
    when it doesn't run; `ours`: the environment that labkit is in."""
    if command is None:
        detail = "Jupyter has no kernel 'python3' here"
    elif prefix is None:
        detail = f"the kernel 'python3' starts {command}, which doesn't run"
    elif not same(prefix, ours):
        detail = f"the kernel 'python3' runs in {prefix}, labkit is in {ours}"
    else:
        return Line("kernel", OK, f"'python3' starts {command}")
    return Line("kernel", FAIL, detail, mend, mendable=True)


def check_model(state: str, detail: str, mend: str) -> Line:
    """As `labkit.model.sources.status` tells."""
    if state == "ready":
        return Line("model", OK, f"checksums agree: {detail}")
    return Line("model", FAIL, f"{state}: {detail}", mend, mendable=True)


def check_copies(stale: list[str], total: int, mend: str) -> Line:
    """`stale`: copies in `my/` that this checkout is ahead of; `total`: all of them."""
    if stale:
        detail = f"{len(stale)} behind this checkout: {', '.join(stale[:3])}"
        return Line("copies", WARN, detail, mend, mendable=True)
    return Line("copies", OK, f"{total} up to date" if total else f"none yet; {LAB} makes them")


def check_cores(cores: float) -> Line:
    """`cores`: those that this process may use; a container's share may be a fraction."""
    if cores < 2:
        remedy = "give the container or virtual machine 2; on 1, measured times are too long"
        return Line("cores", WARN, f"{cores:g} to use", remedy)
    return Line("cores", OK, f"{cores:g} to use")


def check_memory(total: float | None, free: float | None) -> Line:
    """In bytes; None when unknown."""
    if total is None or free is None:
        return Line("memory", WARN, "unknown without psutil", "mend the packages first")
    detail = f"{free / 1e9:.1f} of {total / 1e9:.1f} GB are free"
    if free / 1e9 >= MEMORY_GB:
        return Line("memory", OK, detail)
    if total / 1e9 < MEMORY_GB:
        return Line("memory", FAIL, detail, f"use a machine with {2 * MEMORY_GB:g} GB or more")
    remedy = f"close programs or other notebooks' kernels until {MEMORY_GB:g} GB are free"
    return Line("memory", WARN, detail, remedy)


def check_disk(free: dict[str, int], need: float) -> Line:
    """`free`: bytes by folder; `need`: in GB, in the fullest of them."""
    place = min(free, key=free.__getitem__)
    detail = f"{free[place] / 1e9:.1f} GB are free in {place}"
    if free[place] / 1e9 >= need:
        return Line("disk", OK, detail)
    status = FAIL if need > ROOM_GB else WARN
    return Line("disk", status, detail, f"delete something there: {need:g} GB are needed")


def check_gpu(
    gpu: Gpu | None, silent: bool, system: str, build: str | None, usable: bool, mend: str
) -> Line:
    """`silent`: nvidia-smi is there but tells nothing. `build`: the CUDA version that torch is
    built for, "cpu", or None without torch. `usable`: the driver starts for this process."""
    if gpu is None and silent:
        remedy = "reboot or reinstall the driver; until then everything runs on the CPU"
        return Line("gpu", WARN, "nvidia-smi is there and doesn't answer", remedy)
    if gpu is None:
        return Line("gpu", OK, "no NVIDIA GPU; everything runs on the CPU")
    detail = f"{gpu.name}, driver {gpu.driver}"
    if system != "Linux":
        return Line("gpu", OK, f"{detail}; on {system} everything runs on the CPU")
    if refusal := refuse(gpu):
        remedy = "a newer driver or GPU; until then everything runs on the CPU"
        return Line("gpu", WARN, refusal, remedy)
    if build in (None, "cpu"):
        what = "torch isn't installed" if build is None else "torch is the CPU build"
        return Line("gpu", WARN, f"{detail}, but {what}", mend, mendable=True)
    if not usable:
        remedy = "unset CUDA_VISIBLE_DEVICES, or start the container with --gpus all"
        return Line("gpu", WARN, f"{detail}, but CUDA doesn't start in this process", remedy)
    return Line("gpu", OK, f"{detail}, torch for CUDA {build}")


def check_triton(
    installed: str | None, wanted: bool, on_gpu: bool, compiler: bool, mend: str
) -> Line:
    """The kernel language. `wanted`: requirements.txt pins it on this platform."""
    name = f"the kernel language {installed or ''}".strip()
    if installed is None and wanted:
        return Line("triton", WARN, f"{name}: absent", mend, mendable=True)
    if installed is None:
        detail = f"{name}: absent, there is no build for this platform"
        return Line("triton", WARN, detail, "Linux on x86-64 runs it, also in WSL 2 or on Binder")
    if not on_gpu:
        return Line("triton", OK, f"{name}: interpreter only, since no GPU is in use")
    if not compiler:
        detail = f"{name}: can't compile, there is no C compiler"
        return Line("triton", WARN, detail, "install gcc, or name a compiler in CC")
    return Line("triton", OK, f"{name}: compiled for the GPU")


def check_port(port: int, free: bool, jupyter: bool) -> Line:
    """`jupyter`: what listens there is a Jupyter server."""
    if free:
        return Line("port", OK, f"{port} is free")
    if jupyter:
        return Line("port", OK, f"{port}: a Jupyter server runs there")
    remedy = f"{LAB} without --port takes the next free one"
    return Line("port", WARN, f"{port} is taken by another program", remedy)


def same(one: str | Path, other: str | Path) -> bool:
    """Whether two paths name one place, through links and either case on Windows."""
    return os.path.normcase(os.path.realpath(one)) == os.path.normcase(os.path.realpath(other))
