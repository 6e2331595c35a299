"""Which build of torch a machine gets, CPU or CUDA, and where it comes from.

On Linux the default package index offers the CUDA build, which brings gigabytes of NVIDIA
libraries: useful with a GPU, a waste without one. Elsewhere it offers the CPU build.
"""

import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
REACH_S = 4.0  # an index that hasn't answered by then counts as out of reach

# What torch 2.13's CUDA build asks for: CUDA 13, so driver 580 and a Turing GPU or newer.
MIN_DRIVER = 580
MIN_CAPABILITY = (7, 5)


@dataclass(frozen=True)
class Gpu:
    """The first NVIDIA GPU, as nvidia-smi tells: name, driver version, compute capability."""

    name: str
    driver: str
    capability: tuple[int, int] | None


@dataclass(frozen=True)
class Source:
    """One place that torch may be installed from. Sizes in MB, dependencies of torch included."""

    name: str
    arguments: tuple[str, ...]  # for `pip install`
    download_mb: int
    disk_mb: int


@dataclass(frozen=True)
class Choice:
    """The build, the reason in words, and the places to try, the best first."""

    build: str  # in words
    why: str
    sources: tuple[Source, ...]


def choose(
    version: str, system: str, gpu: Gpu | None, in_folder: bool, index_reachable: bool
) -> Choice:
    """Decides; pure. `version` is torch's pin, `system` what platform.system() returns.

    `in_folder`: pip has a folder of wheels that holds the CPU build.
    """
    default_cpu = Source("the default index", (f"torch=={version}",), 130, 800)
    default = Source("the default index", (f"torch=={version}",), 2530, 4060)
    if system != "Linux":
        return Choice(
            "the CPU build", f"on {system} the default index offers this build", (default_cpu,)
        )
    # "===" compares the whole text: it passes over 2.13.0+cpu, which "==" would prefer.
    cuda = Source("the default index", (f"torch==={version}",), 2530, 4060)
    refusal = refuse(gpu)
    if refusal is None:
        return Choice(
            "the CUDA build", f"there is an {gpu.name}, driver {gpu.driver}", (cuda, default)
        )
    cpu = ("--no-deps", f"torch=={version}+cpu")
    if in_folder:
        best = Source("a folder of wheels", ("--no-index", *cpu), 0, 790)
    elif index_reachable:
        best = Source("PyTorch's CPU index", ("--index-url", CPU_INDEX, *cpu), 192, 790)
    else:
        why = f"{refusal}, but PyTorch's CPU index is out of reach; this one runs on a CPU too"
        return Choice("the CUDA build", why, (default,))
    return Choice("the CPU build", refusal, (best, default))


def keep(installed: str) -> Choice:
    """The choice where a torch that will do is there already."""
    there = Source("an earlier set-up", (), 0, 0)
    return Choice(installed, "it will do on this machine", (there,))


def refuse(gpu: Gpu | None) -> str | None:
    """Why the CUDA build would be no use on this machine, or None when it is of use."""
    if gpu is None:
        return "no NVIDIA GPU was found"
    major = gpu.driver.split(".")[0]
    if not major.isdigit() or int(major) < MIN_DRIVER:
        return f"{gpu.name} has driver {gpu.driver}, and the CUDA build needs {MIN_DRIVER} or newer"
    if gpu.capability is not None and gpu.capability < MIN_CAPABILITY:
        have, need = (".".join(map(str, pair)) for pair in (gpu.capability, MIN_CAPABILITY))
        return f"{gpu.name} has compute capability {have}, and the CUDA build needs {need}"
    return None


def read_gpu() -> Gpu | None:
    """Asks nvidia-smi; None when there is none, or it fails (a driver that isn't loaded)."""
    for fields in ("name,driver_version,compute_cap", "name,driver_version"):  # an old one: two
        try:
            told = subprocess.run(
                ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                timeout=20,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if told.returncode == 0:
            return parse_gpu(told.stdout)
    return None


def parse_gpu(told: str) -> Gpu | None:
    """The first line of `nvidia-smi --query-gpu=name,driver_version[,compute_cap]`."""
    fields = [field.strip() for field in told.strip().split("\n")[0].split(",")]
    if len(fields) < 2:
        return None
    pair = fields[2].split(".") if len(fields) > 2 else []
    known = len(pair) == 2 and all(part.isdigit() for part in pair)
    return Gpu(fields[0], fields[1], (int(pair[0]), int(pair[1])) if known else None)


def reachable(url: str = CPU_INDEX + "/torch/") -> bool:
    """Whether an index answers within `REACH_S` seconds, through the proxy if one is set."""
    try:
        request = urllib.request.Request(url, method="HEAD")
        with urllib.request.urlopen(request, timeout=REACH_S):
            return True
    except (urllib.error.URLError, OSError, ValueError):
        return False
