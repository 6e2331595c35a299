"""`python3 -m labkit …`: sets up what is missing, then runs the command inside `.venv`.

Until the version is checked this file must be read by any Python 3.
"""

import os
import shutil
import sys

MIN_PYTHON = (3, 11)

HELP = """\
usage: python3 -m labkit COMMAND [options]        (Windows: py -m labkit COMMAND)

  lab        open the workbook in JupyterLab; the first time this sets everything up
  test       the same set-up, and then every test
  doctor     look at this machine and this checkout, and say what to mend
  serve      the server: OpenAI's API, and a page with a chat and the live engine
  route      a router in front of several servers: policies, health, retries, pools
  bench      measure: the rungs of the ladder, a server under load, a decode step, the scheduler
  simulate   the scheduler on a virtual clock: traces, policies, many replicas
  capstone   three classes, three promises: keep them at the least cost, and try to break others
  report     the ten questions, answered with your own numbers: one HTML page
  notebooks  build and check the notebooks (for whoever writes them)

"python3 -m labkit COMMAND --help" tells more of each.
Everything that is installed goes into .venv/, your own work into my/, the model into your
user cache. To remove it all, delete these.
"""


def newer():
    """The name of a Python on this machine that is new enough, else of one to install."""
    names = ["python3.13", "python3.12", "python3.14", "python3.11"]
    return next((name for name in names if shutil.which(name)), "python3.13")


def restart_in_utf8(argv):
    """Under LC_ALL=C and the like a path in Hangul is no text; in Python's UTF-8 mode it is."""
    if sys.getfilesystemencoding().lower() != "utf-8":
        variables = dict(os.environ, PYTHONUTF8="1")
        command = [sys.executable, "-X", "utf8", "-m", "labkit"]
        os.execve(sys.executable, command + list(argv), variables)


def main(argv):
    """Runs one command; returns the exit status."""
    if sys.version_info < MIN_PYTHON:
        sys.stderr.write(
            "FAIL this is Python {}.{}, and the workbook needs {}.{} or newer.\n"
            "     Try: {} -m labkit {}\n".format(
                *(sys.version_info[:2] + MIN_PYTHON + (newer(), " ".join(argv) or "lab"))
            )
        )
        return 1
    restart_in_utf8(argv)
    from labkit import commands

    return commands.main(argv, HELP)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
