"""`python3 -m labkit doctor`: looks at this machine and this checkout, and says what to mend.

The judgement is in `diagnoses`, the facts come from `machine`; here they meet. Works outside
`.venv`, and where nothing is installed.
"""

import argparse
import functools
import importlib
import json
import platform
import shutil
import sys
from contextlib import nullcontext, redirect_stdout
from dataclasses import asdict

from labkit import diagnoses as judge
from labkit import environment, machine, paths, torch_build
from labkit.console import SetupError, make_safe
from labkit.diagnoses import FAIL, OK, WARN, Line
from labkit.environment import again

SIGNS = {OK: "✔", WARN: "!", FAIL: "✘"}
POOR_SIGNS = {OK: "+", WARN: "!", FAIL: "x"}  # for a console that hasn't got those

INSTALLED = {"environment", "packages", "labkit", "gpu", "triton"}  # mended by the set-up

ABOUT = """\
Looks at this machine and this checkout. Each line is OK, WARN (it works, but not at its best) or
FAIL (something won't work); a line that isn't OK says what to try.

  python, environment, packages   the Python, .venv, what is installed against requirements.txt
  labkit, kernel                  a notebook's kernel runs where labkit is installed
  model, copies                   the model byte for byte; your notebooks in my/ are up to date
  cores, memory, disk             enough of each; a container's limits count
  gpu, triton                     the GPU, its driver and torch's build; the kernel language
  port                            a port for JupyterLab
"""
EXAMPLES = """\
The exit status is 0 when no line says FAIL, else 1.

  python3 -m labkit doctor            look, and change nothing
  python3 -m labkit doctor --fix      install, fetch and rewrite what is wrong, and look again
  python3 -m labkit doctor --json     for a bug report
  python3 -m labkit doctor --fix triton-server
                                      install Triton Inference Server, for notebook 09 (250 MB)
"""


def run_checks(port: int = 8888) -> list[Line]:
    """Every check, in the order of `ABOUT`. Never raises; changes nothing. About 2 s."""
    root, system = paths.repo_root(), platform.system()
    inside = environment.in_venv()
    made = environment.venv_python().exists()

    @functools.cache
    def pins():
        return machine.pins((root / "requirements.txt").read_text(encoding="utf-8"))

    @functools.cache
    def wrong():
        half = machine.half_unpacked(environment.venv_dir()) if inside else []
        return machine.wrong_packages(pins(), machine.installed_version) + half

    whole = attempt(lambda: bool(pins()) and not wrong(), False)
    mend = again("doctor --fix") if inside or whole else again("lab")
    gpu = torch_build.read_gpu()
    cuda = gpu is not None and system == "Linux" and torch_build.refuse(gpu) is None
    usable = cuda and attempt(machine.cuda_starts, False)
    build = attempt(machine.torch_build, None)
    told = attempt(lambda: machine.ask(sys.executable), machine.UNKNOWN)
    room = judge.ROOM_GB if inside or whole else judge.SETUP_CUDA_GB if cuda else judge.SETUP_GB
    checks = {
        "python": lambda: judge.check_python(
            sys.version_info, machine.bits(), system, platform.machine()
        ),
        "environment": lambda: judge.check_environment(inside, made, whole, sys.prefix, mend),
        "packages": lambda: judge.check_packages(wrong(), len(pins()), mend),
        "labkit": lambda: judge.check_labkit(told["labkit"], root, mend),
        "kernel": lambda: judge.check_kernel(
            told["kernel"], machine.prefix_of(told["kernel"], told), sys.prefix, mend
        ),
        "model": lambda: judge.check_model(*machine.model_status(), mend),
        "copies": lambda: judge.check_copies(
            *machine.copies(root / "notebooks", paths.my_dir()), mend
        ),
        "cores": lambda: judge.check_cores(machine.cores()),
        "memory": lambda: judge.check_memory(*machine.memory()),
        "disk": lambda: judge.check_disk(machine.disk_free(root, paths.cache_dir()), room),
        "gpu": lambda: judge.check_gpu(
            gpu, shutil.which("nvidia-smi") is not None, system, build, usable, mend
        ),
        "triton": lambda: judge.check_triton(
            machine.installed_version("triton"),
            not pins() or any(pin.name == "triton" for pin in pins()),
            usable and build not in (None, "cpu"),
            machine.has_compiler(),
            mend,
        ),
        "port": lambda: judge.check_port(port, *machine.port_use(port)),
    }
    return [guarded(name, check) for name, check in checks.items()]


def attempt(read, otherwise):
    """What `read()` gives, or `otherwise` when it raises."""
    try:
        return read()
    except Exception:
        return otherwise


def guarded(name: str, check) -> Line:
    """The line of a check; one that raises must not hide the others."""
    try:
        return check()
    except Exception as error:
        remedy = f"report this, with the output of {again('doctor --json')}"
        return Line(name, WARN, f"can't be checked: {type(error).__name__}: {error}", remedy)


def mend(lines: list[Line]) -> None:
    """Mends what `lines` says is mendable. Raises SetupError, ModelError.

    Packages go into `.venv`; the rest is done from within it.
    """
    wrong = {line.name for line in lines if line.mendable}
    if wrong & INSTALLED:
        from labkit import bootstrap

        bootstrap.ensure_environment(command="doctor --fix", repair=True)
        importlib.invalidate_caches()
    if leaves_rest(lines):
        return
    if "kernel" in wrong:
        rewrite_kernel()
    if "model" in wrong:
        from labkit.model import sources

        sources.fetch(report=lambda done, total, what: print(f"model: {what}"), verify=True)
    if "copies" in wrong:
        from labkit.workbook import copies

        copies.sync()


def leaves_rest(lines: list[Line]) -> bool:
    """Whether `mend` made `.venv` from without: from within, it goes on."""
    installed = any(line.mendable and line.name in INSTALLED for line in lines)
    return installed and not environment.in_venv()


def rewrite_kernel() -> None:
    """Makes this Python the one that notebooks run in. Raises SetupError."""
    command = [sys.executable, "-m", "ipykernel", "install", "--sys-prefix"]
    status, said = environment.quiet(command)
    if status != 0:
        why = environment.last_line(said)
        raise SetupError("the kernel 'python3' can't be written", why, again("doctor --fix"))


def install_triton_server() -> int:
    """Makes the environment that notebook 09 asks for; returns 0 when the server answers."""
    from labkit.fleet.triton_server import install

    try:
        install.ensure(repair=True)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nInterrupted; to go on: {again(install.COMMAND)}", file=sys.stderr)
        return 130
    return 0


def render(lines: list[Line], encoding: str) -> str:
    """The lines as a table, with signs that a console of this encoding can show."""
    signs = SIGNS
    try:
        "".join(SIGNS.values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        signs = POOR_SIGNS
    width = max(len(line.name) for line in lines)
    shown = []
    for line in lines:
        shown.append(f"{signs[line.status]} {line.status:4}  {line.name:{width}}  {line.detail}")
        if line.remedy:
            shown.append(f"{'':{width + 10}}Try: {line.remedy}")
    counts = [f"{sum(line.status == status for line in lines)} {status}" for status in SIGNS]
    names = ", ".join(line.name for line in lines if line.mendable)
    can = f" {again('doctor --fix')} mends: {names}." if names else ""
    return "\n".join([*shown, "", f"{', '.join(counts)}.{can}"])


def main(arguments: list[str]) -> int:
    """The command; returns 0 when nothing says FAIL and what was to be mended is."""
    parser = argparse.ArgumentParser(
        prog=again("doctor"),
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--fix",
        nargs="?",
        const="all",
        choices=["all", "triton-server"],
        help="mend what can be mended; or install Triton Inference Server",
    )
    parser.add_argument("--json", action="store_true", help="print one object a line of the table")
    parser.add_argument("--port", type=int, default=8888, help="the port to look at (default 8888)")
    options = parser.parse_args(arguments)
    if options.fix == "triton-server":
        return install_triton_server()
    lines, failed = run_checks(options.port), False
    if options.fix and any(line.mendable for line in lines):
        try:
            with redirect_stdout(sys.stderr) if options.json else nullcontext():
                mend(lines)
        except (SetupError, ValueError, OSError) as error:  # ModelError is a ValueError
            failed = True
            print(error if isinstance(error, SetupError) else f"FAIL {error}", file=sys.stderr)
        if not failed and leaves_rest(lines):
            return environment.inside("labkit.doctor", arguments)
        lines = run_checks(options.port)
    if options.json:
        print(json.dumps([asdict(line) for line in lines], indent=1))
    else:
        print(render(lines, getattr(sys.stdout, "encoding", None) or "ascii"))
    return int(failed or any(line.status == FAIL for line in lines))


if __name__ == "__main__":
    make_safe()
    sys.exit(main(sys.argv[1:]))
