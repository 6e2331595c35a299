"""Ends what a Ray cluster leaves behind, however the process that started it ended.

    python -m labkit.fleet.ray_serve.sitter MARK FOLDER     with standard input open

Ray's processes end with the one that started them, but its agents take minutes to notice. This
one waits until its standard input is closed, which the system does even after a SIGKILL. Then it
ends whatever has MARK in its environment, and those of Ray's agents that have a file in FOLDER
open: processes of this cluster, and nobody else's. Then FOLDER goes.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

MARK = "LABKIT_RAY_CLUSTER"  # the variable that holds it
RAYS = "ray::"  # so Ray's processes name themselves; some write that over their environment
PATIENCE_S = 10.0


def start(mark: str, folder: str) -> subprocess.Popen:
    """Starts the sitter. Its standard input is to be closed at the end, and then waited for."""
    return subprocess.Popen(
        [sys.executable, "-m", "labkit.fleet.ray_serve.sitter", mark, folder],
        stdin=subprocess.PIPE, cwd=Path(__file__).parents[3],
        start_new_session=True,  # Ctrl-C is not for it
    )  # fmt: skip


def main(mark: str, folder: str) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    not_these = {os.getpid(), os.getppid()}  # the latter has closed the input, or is dead
    while os.read(sys.stdin.fileno(), 1024):
        pass
    end_all(mark, folder, not_these)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def end_all(mark: str, folder: str, not_these: set[int]) -> None:
    """Ends the processes of a cluster, but for `not_these` ids."""
    last = time.monotonic() + PATIENCE_S
    while (left := members(mark, folder, not_these)) and time.monotonic() < last:
        for process in left:
            with suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1)


def members(mark: str, folder: str, not_these: set[int]) -> list[psutil.Process]:
    """The processes of this cluster that are alive."""
    others = (one for one in psutil.process_iter() if one.pid not in not_these)
    folder = os.path.realpath(folder)  # as open files are called
    return [one for one in others if is_of(one, mark, folder)]


def is_of(process: psutil.Process, mark: str, folder: str) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if process.environ().get(MARK) == mark:
            return True
        if not "".join(process.cmdline()[:1]).startswith(RAYS):
            return False  # somebody reads a log, perhaps
        return any(file.path.startswith(folder) for file in process.open_files())
    except (psutil.Error, OSError):
        return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
