"""Runs a part in the worker process and says what was found. Never raises, never hangs."""

import atexit
import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field

from labkit.workbook import cut, parts
from labkit.workbook.registry import Exercise

SECONDS = 5.0  # a part may run this long; the cases take milliseconds
START_SECONDS = 120.0  # starting a process and importing torch, on a slow disk


@dataclass(frozen=True)
class Finding:
    """The outcome of one check and what explains it.

    `outcome` is "passed", "wrong", "crashed" or "not attempted". `case` is the index of the
    first case that failed, `found` what the part did there, `mistake` the known mistake it
    matches, `error` a traceback, `printed` what the part printed, `line` where an endless part
    was when it was stopped. `reason` is a sentence of the catalogue for a part that could not
    be run at all, with its `values`.
    """

    outcome: str
    case: int | None = None
    found: object = None
    mistake: str | None = None
    error: str | None = None
    printed: str = ""
    endless: bool = False
    line: str = ""
    unknown: tuple[str, ...] = ()
    reason: str | None = None
    values: dict = field(default_factory=dict)


class Worker:
    """The process in which parts run: started at the first check, again after it was lost."""

    def __init__(self):
        self.process = None
        self.connection = None
        self.lock = threading.Lock()  # one check at a time, whatever threads a notebook has
        self.jobs = 0

    def start(self) -> None:
        from labkit.workbook import worker

        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=worker.serve, args=(theirs,), daemon=True)
        with _silent_main():
            self.process.start()
        theirs.close()

    def run(self, exercise_id: str, part: str, seconds: float) -> Finding:
        """The finding for a part; a worker that was damaged by an earlier part is replaced."""
        with self.lock:
            try:
                finding = self.ask(exercise_id, part, seconds)
                finding = finding or self.ask(exercise_id, part, seconds)
            except BaseException:  # an interrupt: what the worker says later answers nothing
                self.stop()
                raise
        return finding or Finding("crashed", reason="check.worker_failed")

    def ask(self, exercise_id: str, part: str, seconds: float) -> Finding | None:
        """Sends the part and waits for its finding, at most the time it may take.

        None when the worker ended, or took too long, before the part's turn came.
        """
        if self.process is None or not self.process.is_alive():
            self.start()
        self.jobs += 1
        job = {"job": self.jobs, "exercise": exercise_id, "part": part, "seconds": seconds}
        ready, case, deadline = False, None, time.monotonic() + START_SECONDS
        ended = True  # the pipe was closed, or something else than a message came through it
        with contextlib.suppress(EOFError, OSError, ValueError, TypeError, AttributeError):
            self.connection.send_bytes(json.dumps(job).encode())
            while self.connection.poll(max(0.0, deadline - time.monotonic())):
                message = json.loads(self.connection.recv_bytes())
                if message.pop("job") != self.jobs:
                    continue  # a process that an earlier part left behind
                if "outcome" in message:
                    left = message.pop("left", False)  # a process that the part has started
                    if left or message.get("endless"):
                        self.stop()
                    return Finding(**message)
                if "ready" in message:
                    ready = True
                    deadline = time.monotonic() + seconds + 5.0  # the watchdog speaks first
                case = message.get("case", case)
            ended = False
        self.stop()
        if not ready:
            return None
        if ended:
            return Finding("crashed", case=case, reason="check.process_ended")
        return Finding("wrong", case=case, endless=True)

    def stop(self) -> None:
        """Ends the process, whatever it is doing, and what a part has started in it."""
        process, self.process = self.process, None
        if process is not None and process.pid is not None:
            if hasattr(os, "killpg"):
                with contextlib.suppress(OSError):  # it leads no group yet
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            process.join()
            self.connection.close()


@contextlib.contextmanager
def _silent_main():
    """Keeps a spawned process from importing the notebook's or the test runner's main again."""
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name, None) for name in ("__file__", "__spec__")}
    try:
        main.__spec__ = None
        if hasattr(main, "__file__"):
            del main.__file__
        yield
    finally:
        for name, value in kept.items():
            if value is not None:
                setattr(main, name, value)


_worker = Worker()
atexit.register(_worker.stop)
_reading = threading.Lock()  # ast.parse in two threads may raise SystemError (Python 3.11)


def check_cell(
    exercise: Exercise, cell: str | None, seconds: float = SECONDS, worker: Worker = _worker
) -> Finding:
    """The finding for the text of an exercise cell; None means that none has been run."""
    if cell is None:
        return Finding("not attempted", reason="check.cell_not_run")
    with _reading:
        try:
            part = parts.part_from_cell(parts.Hole.of(exercise), cell)
        except parts.PartError as error:
            outcome = "wrong" if error.key == "check.signature" else "crashed"
            return Finding(outcome, reason=error.key, values=error.values)
        if cut.is_stub(part):
            return Finding("not attempted")
    return worker.run(exercise.id, part, seconds)
