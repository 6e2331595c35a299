"""What an option of a benchmark may be; argparse tells the rest as one line with the remedy."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from labkit.measure import workload
from labkit.model.loading import DTYPES
from labkit.rungs import RUNGS

CPU_DTYPES = (*(name for name in DTYPES if name != "float16"), "int8")
MOST = 10_000_000  # of anything that can be asked for
STARTED_IN = "LABKIT_STARTED_IN"  # a benchmark runs in the checkout; its paths count from here


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, and ends with status 2."""

    def __init__(self, **options):
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **options
        )

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"FAIL {self.prog}: {message} (more: {self.prog} --help)\n")


def path(text: str) -> Path:
    """A path as the person who started the benchmark means it."""
    return Path(os.environ.get(STARTED_IN, "."), text)


def writable(text: str) -> Path:
    """A file that can be written when the benchmark is over; nothing is created now."""
    file = path(text)
    if file.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder; name a file")
    if not file.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {str(file.parent)!r}; make it first")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} may not be written; choose another place")
    return file


def picture(text: str) -> Path:
    """A file for a picture."""
    if Path(text).suffix not in (".png", ".svg", ".pdf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no .png, .svg or .pdf; name one of these")
    return writable(text)


def whole(least: int, most: int = MOST) -> Callable[[str], int]:
    """A whole number from `least` to `most`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no whole number from {least} to {most:,}; choose one"
            )
        return value

    return read


def wholes(text: str) -> list[int]:
    """Whole numbers from 1 on, separated by commas, each once."""
    return list(dict.fromkeys(whole(1)(part) for part in text.split(",")))


def rungs(text: str) -> list[str]:
    """Rungs of the ladder, separated by commas, each once."""
    for name in text.split(","):
        if name not in RUNGS:
            raise argparse.ArgumentTypeError(
                f"rung {name!r} is not known; accepted are {', '.join(RUNGS)}"
            )
    return list(dict.fromkeys(text.split(",")))


def one_of(dtypes: tuple[str, ...]) -> Callable[[str], str]:
    """A precision among `dtypes`."""

    def read(text: str) -> str:
        if text not in dtypes:
            raise argparse.ArgumentTypeError(
                f"dtype {text!r} is not known; accepted are {', '.join(dtypes)}"
            )
        return text

    return read


def add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        default="smollm2-135m",
        metavar="NAME",
        help="smollm2-135m, tiny, a folder or a hub name (default: smollm2-135m)",
    )


def add_dtype(parser: argparse.ArgumentParser, dtypes: tuple[str, ...] = CPU_DTYPES) -> None:
    """`dtypes` are those that labkit's decoder has on a CPU, unless told otherwise."""
    parser.add_argument(
        "--dtype",
        type=one_of(dtypes),
        default="float32",
        metavar="DTYPE",
        help=f"{', '.join(dtypes)} (default: float32)",
    )


def add_workload(
    parser: argparse.ArgumentParser, built_in: str = "16 built-in requests, 8 to 96 tokens out"
) -> None:
    parser.add_argument(
        "--workload",
        type=path,
        metavar="FILE",
        help=f"JSONL, a request a line (default: {built_in})",
    )


def workload_of(options: argparse.Namespace) -> tuple[list[workload.WorkloadRequest], str]:
    """The requests that the options ask for, and where they come from. Raises WorkloadError."""
    if options.workload:
        return workload.read(options.workload), Path(options.workload).name
    return workload.synthetic(options.seed), f"built in, from seed {options.seed}"


def add_common(parser: argparse.ArgumentParser) -> None:
    """`--seed` keeps the default that the parser has for it."""
    parser.add_argument("--seed", type=whole(0), metavar="N", help="default: 0")
    parser.add_argument(
        "--json", type=writable, metavar="FILE", help="write what was printed, once all is done"
    )
