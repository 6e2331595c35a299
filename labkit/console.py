"""What a person at a terminal sees while something lasts; standard library only."""

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

SPARSE_S = 10.0  # where a line can't be rewritten, one is printed at most this often


class SetupError(Exception):
    """A stage that failed: what failed, why, and the one command to try."""

    def __init__(self, what: str, why: str, command: str):
        super().__init__(f"{what}: {why}")
        self.what, self.why, self.command = what, why, command

    def __str__(self) -> str:
        return f"FAIL {self.what}\n     {self.why}\n     Try: {self.command}"


def make_safe() -> None:
    """A character that the console can't show is printed as an escape; it never raises."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # None under pythonw, a plain object under some IDEs
            stream.reconfigure(errors="backslashreplace", line_buffering=True)


class Line:
    """One line about something that lasts: "[2/5] packages: downloading torch, 12 s".

    On a terminal it is rewritten every second. Elsewhere (a log, CI) it is printed when what
    is waited for has changed, at most every `SPARSE_S` seconds.
    """

    def __init__(self, label: str, stream: TextIO):
        self._label, self._stream = label, stream
        self._tty = stream.isatty()
        self._waiting_for, self._shown = "", ""
        self._began = time.monotonic()
        self._printed_at = self._began
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        if not self._tty:
            self._stream.write(f"{label} ...\n")
        self._ticker.start()

    def waiting(self, what: str) -> None:
        """Tells what is being waited for from now on."""
        self._waiting_for = what

    def end(self, outcome: str) -> float:
        """Puts the last line; returns the seconds that it took."""
        self._over.set()
        self._ticker.join()
        seconds = time.monotonic() - self._began
        self._put(f"{self._label}: {outcome}, {seconds:.1f} s", last=True)
        return seconds

    def _tick(self) -> None:
        while not self._over.wait(1.0 if self._tty else 0.25):
            now = time.monotonic()
            text = f"{self._label}: {self._waiting_for}" if self._waiting_for else self._label
            if self._tty:
                self._put(f"{text}, {now - self._began:.0f} s")
            elif text != self._shown and now - self._printed_at >= SPARSE_S:
                self._put(f"{text}, {now - self._began:.0f} s", last=True)
                self._shown, self._printed_at = text, now

    def _put(self, text: str, last: bool = False) -> None:
        if self._tty:
            room = shutil.get_terminal_size().columns - 1
            text = "\r" + text[:room].ljust(room)
        self._stream.write(text + ("\n" if last else ""))
        self._stream.flush()


class Stages:
    """The stages of one job, each on a line of its own, and what each of them took."""

    def __init__(self, total: int, stream: TextIO | None = None):
        self._total, self._stream = total, stream or sys.stdout
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, title: str) -> Iterator[Callable[[str], None]]:
        """Shows a stage while its body runs; gives the function that tells what it waits for."""
        line = Line(f"[{len(self.seconds) + 1}/{self._total}] {title}", self._stream)
        try:
            yield line.waiting
        except BaseException as error:
            line.end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
            raise
        self.seconds[title] = line.end("done")

    def table(self) -> str:
        """The seconds of every stage, one a line, and their sum."""
        rows = [*self.seconds.items(), ("in all", sum(self.seconds.values()))]
        width = max(len(title) for title, _ in rows)
        return "\n".join(f"  {title.ljust(width)} {seconds:8.1f} s" for title, seconds in rows)
