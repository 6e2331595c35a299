"""`python3 -m labkit notebooks build | check | run | stamp | mistakes`: for their writers."""

import argparse
import sys
import time
from typing import TYPE_CHECKING

from labkit.workbook import source

if TYPE_CHECKING:  # the help is told before anything is installed
    from labkit.workbook.generated import Book

COMMAND = "python3 -m labkit notebooks"
DESCRIPTION = """\
Notebooks are built, not edited: their text stands in notebooks/source/NN_name.py, and their
exercises are cut from labkit. Each source becomes notebooks/NN_name.ipynb, the same in Korean
under notebooks/ko/, and solutions/NN_name.ipynb.

  build       write the notebooks whose source, or whose labkit code, has changed
  check       fail, with a diff, when a notebook or a translation is out of date
  run [NN]    execute the solutions and store what they put out (all, or those named)
  stamp [NN]  say that the Korean of these notebooks has been brought up to date
  mistakes    put every known mistake through its check, and show what the learner is told
"""


def main(argv: list[str], book: "Book | None" = None) -> int:
    """Runs one command; returns the exit status. `book` is labkit's own unless given."""
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, action in COMMANDS.items():
        sub = commands.add_parser(name, help=action.__doc__.split("\n")[0])
        if name in ("run", "stamp", "mistakes"):
            sub.add_argument("numbers", nargs="*", metavar="NN", help="notebooks, as 01 02")
    arguments = parser.parse_args(argv)
    from labkit.workbook import build

    try:
        return COMMANDS[arguments.command](
            book or build.labkit_book(), getattr(arguments, "numbers", [])
        )
    except source.SourceError as error:
        print(f"FAIL {error}", file=sys.stderr)
        return 1


def build_all(book: "Book", _numbers: list[str]) -> int:
    """Write the notebooks that have changed."""
    from labkit.workbook import build

    began = time.perf_counter()
    written = build.build(book)
    for path in written:
        print(f"written    {path}")
    total = len(build.sources(book)) * len(build.EDITIONS)
    seconds = time.perf_counter() - began
    print(
        f"{len(written)} of {total} notebooks written, the others are up to date ({seconds:.1f} s)"
    )
    return 0


def check_all(book: "Book", _numbers: list[str]) -> int:
    """Fail, with a diff, when something is out of date."""
    from labkit.workbook import build

    found = build.stale(book)
    for notebook in found:
        print(notebook.diff)
    for notebook in found:
        changed = f": {', '.join(notebook.changed)} changed" if notebook.changed else ""
        print(f"FAIL {notebook.path} is out of date{changed}")
    problems = list(build.problems(book))
    for problem in problems:
        print(f"FAIL {problem}")
    if found:
        print(f"To mend the notebooks: {COMMAND} build")
    elif not problems:
        print("OK   every notebook is what its source and labkit say, in both languages")
    return 1 if found or problems else 0


def run_some(book: "Book", numbers: list[str]) -> int:
    """Execute solutions and store what they put out."""
    from labkit.workbook.run import RunError, run  # a kernel client, which the others don't need

    for item in _chosen(book, numbers):
        print(f"running    solutions/{item.name}.ipynb", flush=True)
        try:
            seconds = run(book, item)
        except RunError as error:
            print(
                f"FAIL {error}\nNothing was stored. Mend the cell and run it again:",
                file=sys.stderr,
            )
            print(f"{COMMAND} run {item.number}", file=sys.stderr)
            return 1
        print(f"           {seconds:.1f} s")
    return build_all(book, [])  # headers tell the run time


def stamp_some(book: "Book", numbers: list[str]) -> int:
    """Say that the Korean has been brought up to date."""
    for item in _chosen(book, numbers):
        changed = source.stamp(book.root / "notebooks" / "source" / f"{item.name}.py")
        print(f"{item.name}: {changed} translations stamped")
    return 0


def list_mistakes(book: "Book", numbers: list[str]) -> int:
    """Put every known mistake through its check, and show what the learner is told."""
    from labkit.workbook.checker import check_cell
    from labkit.workbook.parts import Hole

    missed = 0
    for item in book.exercises.values():
        if numbers and item.notebook not in numbers:
            continue
        reference = Hole.of(item).reference
        print(f"{item.id} {item.symbol}: labkit's own {check_cell(item, reference).outcome}")
        for mistake in item.mistakes:
            finding = check_cell(item, mistake.apply(reference))
            caught = finding.outcome == "wrong" and finding.mistake == mistake.name
            missed += not caught
            told = book.text(f"{item.id}.mistake.{mistake.name}", "en")
            print(f"  {'caught' if caught else 'MISSED'}  {mistake.name}: {told}")
    return 1 if missed else 0


def _chosen(book: "Book", numbers: list[str]) -> list[source.Source]:
    """The sources with these numbers, all when there are none."""
    from labkit.workbook import build

    found = {item.number: item for item in build.sources(book)}
    for number in numbers:
        if number not in found:
            raise source.SourceError(
                f"there is no notebook {number!r}; there are {', '.join(found)}"
            )
    return [item for number, item in found.items() if not numbers or number in numbers]


COMMANDS = {
    "build": build_all,
    "check": check_all,
    "run": run_some,
    "stamp": stamp_some,
    "mistakes": list_mistakes,
}
