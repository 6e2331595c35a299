"""What `python3 -m labkit report` can be told, and what it does. Loads nothing before it must."""

import argparse
import os
import sys
from argparse import ArgumentTypeError
from pathlib import Path

from labkit import paths
from labkit.environment import again

DESCRIPTION = """\
Writes the report: one HTML file that needs no network. Each of the ten questions with the study
group's short answer, your predictions beside what you measured, what the numbers say, and your own
pictures; then the machine, and what remains open. It reads what the notebooks kept in my/ and
measures nothing.

  python3 -m labkit report --open             my/report.html, shown in the browser
  python3 -m labkit report --output team.html --lang ko
"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, and ends with status 2."""

    def error(self, message: str):
        self.exit(2, f"FAIL {self.prog}: {message} (more: {self.prog} --help)\n")


def parse(argv: list[str]) -> argparse.Namespace:
    """The options. Prints a help or one line about what is wrong, and exits, when it must."""
    parser = Parser(
        prog=again("report"), description=DESCRIPTION, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "--output", type=writable, metavar="FILE", help="the file to write (my/report.html)"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    parser.add_argument(
        "--lang", choices=("en", "ko"), help="language (default: what you chose in notebook 00)"
    )
    return parser.parse_args(argv)


def writable(text: str) -> Path:
    """A file that can be written; nothing is created now."""
    file = Path(os.environ.get("LABKIT_STARTED_IN", "."), text)
    if file.is_dir():
        raise ArgumentTypeError(f"{text!r} is a folder; name a file")
    if not file.parent.is_dir():
        raise ArgumentTypeError(f"there is no folder {str(file.parent)!r}; make it first")
    return file


def main(argv: list[str]) -> int:
    """Writes the file, says where it is, and opens it if asked."""
    options = parse(argv)
    if options.lang:
        os.environ["LABKIT_LANG"] = options.lang
    from labkit.workbook.ten_questions.account import account
    from labkit.workbook.ten_questions.page import html

    found = account()
    path = (options.output or paths.my_dir() / "report.html").absolute()
    try:
        paths.write_atomic(path, html(found))
    except OSError as error:
        print(f"FAIL {path} can't be written: {error}", file=sys.stderr)
        print(f"     Try: {again('report --output FILE')}", file=sys.stderr)
        return 1
    for problem in found.kept.problems:
        print(f"WARN {problem}")
    passed = found.num_exercises - len(found.not_passed)
    print(
        f"{found.num_answered} of {len(found.answers)} questions answered, "
        f"{passed} of {found.num_exercises} exercises passed, "
        f"{found.num_hits} of {len(found.kept.predicted)} predictions within a factor of 2"
    )
    print(f"Written: {path}")
    if options.open:
        show(path)
    return 0


def show(path: Path) -> None:
    """Opens the file in the person's browser, or says that there is none."""
    from labkit.lab import browser

    opener = browser()
    if opener is None or not opener.open(path.as_uri()):
        print("No browser can be opened here: open the file in one.")
