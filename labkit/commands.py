"""The commands of `python3 -m labkit`: which of them needs what, and where it runs."""

import argparse
import os
import shlex
import sys
import tempfile

from labkit import bootstrap, environment, lab, ray_wheel
from labkit.console import SetupError, make_safe
from labkit.environment import inside

# The notebooks in Korean have the same code cells, which a test compares: they are run once.
EVERY_TEST = [
    "tests", "notebooks", "solutions", "--nbval", "--nbval-current-env", "--ignore=notebooks/ko",
]  # fmt: skip


def main(argv: list[str], usage: str) -> int:
    """Runs the command that `argv` begins with; `usage` is printed when there is none."""
    make_safe()
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        print(usage, end="")
        return 0
    if name not in COMMANDS:
        print(f"FAIL there is no command {name!r}\n\n{usage}", end="", file=sys.stderr)
        return 2
    try:
        return COMMANDS[name](rest)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        go_on = environment.again(shlex.join(argv))
        print(f"\nInterrupted. What is done stays done; to go on: {go_on}")
        return 130


def run_lab(arguments: list[str]) -> int:
    """Sets up, and opens JupyterLab."""
    parser = argparse.ArgumentParser(
        prog=environment.again("lab"),
        description="Opens the workbook in JupyterLab, on your own copies of the notebooks in my/. "
        "The first time it makes .venv/, installs the packages and fetches the model.",
    )
    lab.add_options(parser)
    parser.parse_args(arguments)
    bootstrap.ensure_environment(command=shlex.join(["lab", *arguments]))
    return inside("labkit.lab", arguments)


def run_test(arguments: list[str]) -> int:
    """Sets up with the test tools, and runs pytest."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(
            f"usage: {environment.again('test')} [arguments of pytest]\n\n"
            f"Without arguments every test and every notebook: pytest {' '.join(EVERY_TEST)}\n"
            "Your own work in my/ is neither read nor written."
        )
        return 0
    bootstrap.ensure_environment("test", command=shlex.join(["test", *arguments]))
    with tempfile.TemporaryDirectory(prefix="labkit-test-") as scratch:
        os.environ["LABKIT_MY"] = scratch
        os.environ.setdefault("MPLBACKEND", "agg")
        os.environ.pop("LABKIT_LANG", None)
        return inside("pytest", arguments or EVERY_TEST)


def run_doctor(arguments: list[str]) -> int:
    """Looks at this machine; works without a `.venv`, and says so then."""
    if environment.works(environment.venv_python()):
        return inside("labkit.doctor", arguments)
    from labkit import doctor

    return doctor.main(arguments)


def run_notebooks(arguments: list[str]) -> int:
    """Builds and checks the notebooks."""
    if not arguments or {"-h", "--help"} & {*arguments}:
        from labkit.workbook import notebooks_cli

        return notebooks_cli.main(arguments or ["--help"])
    bootstrap.ensure_environment(command=shlex.join(["notebooks", *arguments]))
    code = "import sys; from labkit.workbook import notebooks_cli as cli; "
    return inside("-c", [code + "sys.exit(cli.main(sys.argv[1:]))", *arguments])


def run_bench(arguments: list[str]) -> int:
    """Measures; options are looked at before anything is set up."""
    os.environ["LABKIT_STARTED_IN"] = os.getcwd()  # what runs inside starts in the checkout
    from labkit.measure.bench import cli

    cli.parse(arguments or ["--help"])
    bootstrap.ensure_environment(command=shlex.join(["bench", *arguments]))
    return inside("labkit.measure.bench", arguments)


def run_simulate(arguments: list[str]) -> int:
    """Simulates; options are looked at before anything is set up."""
    os.environ["LABKIT_STARTED_IN"] = os.getcwd()  # what runs inside starts in the checkout
    from labkit.measure.simulate import cli

    cli.parse(arguments or ["--help"])
    bootstrap.ensure_environment(command=shlex.join(["simulate", *arguments]))
    return inside("labkit.measure.simulate", arguments)


def run_capstone(arguments: list[str]) -> int:
    """Plays the capstone; options are looked at before anything is set up."""
    os.environ["LABKIT_STARTED_IN"] = os.getcwd()  # what runs inside starts in the checkout
    from labkit.measure.capstone import cli

    cli.parse(arguments or ["--help"])
    bootstrap.ensure_environment(command=shlex.join(["capstone", *arguments]))
    return inside("labkit.measure.capstone", arguments)


def run_serve(arguments: list[str]) -> int:
    """Serves; options are looked at before anything is set up."""
    os.environ["LABKIT_STARTED_IN"] = os.getcwd()  # what runs inside starts in the checkout
    from labkit.serving import naming, options

    chosen = options.parse(arguments)
    if chosen.replicas:
        ray_wheel.refuse()
    extra = "ray" if chosen.replicas else None
    bootstrap.ensure_environment(extra, command=shlex.join(["serve", *arguments]))
    module = "labkit.fleet.models" if naming.has_several(chosen) else "labkit.serving"
    module = "labkit.fleet.ray_serve.local" if chosen.replicas else module
    return environment.become(module, arguments)


def run_route(arguments: list[str]) -> int:
    """Routes; options are looked at before anything is set up."""
    from labkit.fleet.router import options as route_options

    route_options.parse(arguments)
    bootstrap.ensure_environment(command=shlex.join(["route", *arguments]))
    return environment.become("labkit.fleet.router.route", arguments)


def run_report(arguments: list[str]) -> int:
    """Writes the report; options are looked at before anything is set up."""
    os.environ["LABKIT_STARTED_IN"] = os.getcwd()  # what runs inside starts in the checkout
    from labkit.workbook.ten_questions import cli

    cli.parse(arguments)
    bootstrap.ensure_environment(command=shlex.join(["report", *arguments]))
    return inside("labkit.workbook.ten_questions", arguments)


COMMANDS = {
    "serve": run_serve,
    "route": run_route,
    "lab": run_lab,
    "test": run_test,
    "doctor": run_doctor,
    "bench": run_bench,
    "simulate": run_simulate,
    "capstone": run_capstone,
    "report": run_report,
    "notebooks": run_notebooks,
}
