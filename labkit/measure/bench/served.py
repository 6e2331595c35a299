"""Servers that a benchmark starts for itself, and ends whatever becomes of it."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from labkit import paths
from labkit.measure.bench import server_side
from labkit.measure.bench.drive import BenchError, Tell

PATIENCE_S = 300  # until a model is loaded
PATIENT = ("--step-timeout", "300")  # a machine with much else to do is slow, and no engine dead
HOMES = {
    "in-process": ("--in-process", *PATIENT), "thread": ("--in-thread", *PATIENT),
    "process": PATIENT, "none": (),
}  # fmt: skip
LAST_S = 10.0  # until killed processes are gone


class Served:
    """`python -m MODULE` on a free port of this machine. `home` is where its engine lives: "none"
    of a router, which has none."""

    def __init__(self, module: str, options: Sequence[str], home: str, folder: Path):
        self.home, self.port = home, 0
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        command = [sys.executable, "-m", module, *options, *HOMES[home], "--port", "0"]
        hidden = {"LABKIT_API_KEY"}  # it would ask its clients for it
        environment = {name: value for name, value in os.environ.items() if name not in hidden}
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=paths.repo_root(), stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env=environment,
            )  # fmt: skip
        self.pid = self.engine_pid = self.process.pid

    def wait_until_ready(self) -> None:
        """Raises BenchError, with what it said last, when it doesn't come up."""
        last = time.monotonic() + PATIENCE_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > last:
                said = self.err.read_text("utf-8", "replace").strip() or "nothing"
                raise BenchError(f"the server doesn't start; it says: {said[-800:]}")
            time.sleep(0.05)
        children = psutil.Process(self.pid).children()
        if self.home == "process":
            self.engine_pid = children[0].pid

    def is_ready(self) -> bool:
        found = re.search(r"Open: http://[\d.]+:(\d+)", self.out.read_text("utf-8", "replace"))
        self.port = int(found[1]) if found else 0
        with suppress(urllib.error.URLError, OSError):
            return bool(self.port) and bool(self.get("/health"))
        return False

    def get(self, path: str) -> str:
        address = f"http://127.0.0.1:{self.port}{path}"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(address, timeout=30) as response:
            return response.read().decode()

    def totals(self) -> dict[str, float]:
        """The totals on its /metrics, by name, and the CPU seconds of API and engine."""
        found = server_side.totals(self.get("/metrics"))
        api, engine = self.cpu_seconds()
        return found | {"api_cpu": api} | ({} if engine is None else {"engine_cpu": engine})

    def cpu_seconds(self) -> tuple[float, float | None]:
        """Of the API and of the engine; all of both and None where that can't be told apart."""
        threads = seconds_of_threads(self.pid)
        whole = sum(threads.values())
        if self.home == "process":
            return whole, sum(seconds_of_threads(self.engine_pid).values())
        # The API's loop is the main thread, which on Linux has the number of the process.
        if self.home == "thread" and self.pid in threads:
            return threads[self.pid], whole - threads[self.pid]
        return whole, None

    def end(self) -> None:
        """Kills it. Its engine ends with it; waits until both are gone."""
        family = [self.process.pid]
        with suppress(psutil.Error):
            family = [psutil.Process(self.pid), *psutil.Process(self.pid).children(recursive=True)]
        self.process.kill()
        self.process.wait()
        left = psutil.wait_procs([one for one in family if one != self.pid], LAST_S)[1]
        for one in left:
            with suppress(psutil.Error):
                one.kill()


def seconds_of_threads(pid: int) -> dict[int, float]:
    """CPU seconds of each thread of a process; on Linux in nanoseconds, elsewhere in the clock
    ticks of the system, and for the whole process under the number 0."""
    found = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError, ValueError, IndexError):  # it has just ended, or is not told
            found[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
    if not any(found.values()):
        times = psutil.Process(pid).cpu_times()
        found = {0: times.user + times.system}
    return found


@contextmanager
def serving(
    options: Sequence[str], home: str = "process", module: str = "labkit.serving",
    tell: Tell = lambda text: None,
) -> Iterator[Served]:  # fmt: skip
    """A server that is ready, for as long as the block lasts. SIGTERM ends the block too."""
    tell("the server starts")
    with tempfile.TemporaryDirectory(prefix="labkit-bench-") as folder, ended_by_sigterm():
        served = Served(module, options, home, Path(folder))
        try:
            served.wait_until_ready()
            yield served
        finally:
            served.end()


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """SIGTERM unwinds the stack, so that nothing that was started is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
