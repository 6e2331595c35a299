"""Starts Triton Inference Server on this machine, and ends it. Standard library only.

It listens on 127.0.0.1 only, over HTTP only, and loads nothing until it is told to (explicit
model control).
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labkit import environment
from labkit.fleet.triton_server import install

START_S = 60.0
STOP_S = 40.0  # it unloads its models first
LOAD_S = 600.0
READY_S = 5.0  # for a word about its health
TRIES = 3  # a port that was free may be taken by the time that it listens
TAKEN = "already in use"  # Socket '127.0.0.1:8000' already in use
SHARED_MEMORY = Path("/dev/shm")
STUB = b"triton_python_backend_stub"
OWN_LIBRARY = {"LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH"}


class ServerError(RuntimeError):
    """The server doesn't start, or refuses what it is asked; the text is its own."""


class Server:
    """A running server. `get` and `post` take paths below /v2/ and give its JSON."""

    def __init__(self, process: subprocess.Popen, port: int, prefix: str, log: Path):
        self.process, self.port, self.prefix, self.log = process, port, prefix, log
        self.url = f"http://127.0.0.1:{port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def get(self, path: str) -> dict:
        return self.ask(path, None)

    def post(self, path: str, body: dict | None = None) -> dict | list:
        return self.ask(path, json.dumps(body or {}).encode())

    def ask(self, path: str, body: bytes | None, timeout_s: float = LOAD_S):
        """Raises ServerError with the reason that it gives."""
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        address = f"{self.url}/v2/{path}".rstrip("/")
        try:
            with direct.open(urllib.request.Request(address, body), timeout=timeout_s) as response:
                said = response.read()
        except urllib.error.HTTPError as error:
            raise ServerError(f"{path}: {error.read().decode('utf-8', 'replace')}") from None
        except OSError as error:
            raise ServerError(f"{address} gives no answer: {error}") from None
        return json.loads(said) if said else {}

    def is_ready(self) -> bool:
        with contextlib.suppress(ServerError):
            self.ask("health/ready", None, READY_S)
            return True
        return False

    def wait_until_ready(self) -> None:
        """Raises ServerError, with what it said last, when it doesn't come up."""
        last = time.monotonic() + START_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > last:
                raise ServerError(f"Triton Inference Server doesn't start: {self.last_words()}")
            time.sleep(0.05)

    def last_words(self) -> str:
        """The last of its log that isn't a table."""
        said = self.log.read_text("utf-8", "replace").splitlines()
        return " ".join(line for line in said if line[:1] not in "|+")[-800:] or "it said nothing"

    def end(self) -> None:
        """Has it unload its models and end; kills it when that takes too long. Safe to repeat."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        clear(self.prefix)


@contextmanager
def running(repository: Path) -> Iterator[Server]:
    """A server over a model repository, for as long as the block lasts. Raises ServerError.

    It also ends with the thread that started it, however that ends, `kill -9` included.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-triton-server-") as folder:
        server = start(repository, Path(folder))
        try:
            yield server
        finally:
            server.end()


def clear(prefix: str) -> None:
    """Ends what a killed server leaves behind: the processes of its models, which may wait for
    it for ever, and their shared memory. All of it bears the server's prefix."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile, or isn't ours
            words = (process / "cmdline").read_bytes().split(b"\0")
            if words[0].endswith(STUB) and any(w.startswith(prefix.encode()) for w in words):
                os.kill(int(process.name), signal.SIGKILL)
    for left in SHARED_MEMORY.glob(f"{prefix}*"):
        left.unlink(missing_ok=True)


def clear_of_the_dead() -> None:
    """Clears after servers whose own starter was killed as well."""
    for left in SHARED_MEMORY.glob("labkit_*_*"):
        owner = left.name.split("_")[1]
        if owner.isdigit() and not Path("/proc", owner).exists():
            clear("_".join(left.name.split("_")[:3]) + "_")


def start(repository: Path, folder: Path) -> Server:
    """Starts it, on another port when the first is taken meanwhile."""
    clear_of_the_dead()
    for number in range(1, TRIES + 1):
        server = start_once(repository, folder)
        try:
            server.wait_until_ready()
            return server
        except BaseException as error:
            server.end()
            taken = isinstance(error, ServerError) and TAKEN in str(error)
            if not taken or number == TRIES:
                raise
    raise AssertionError("not reached")


def start_once(repository: Path, folder: Path) -> Server:
    port, prefix = free_port(), f"labkit_{os.getpid()}_{time.monotonic_ns()}_"
    log = folder / "log.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(repository, port, prefix), env=variables(), cwd=folder, stdout=output,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, preexec_fn=end_with_parent,
        )  # fmt: skip
    return Server(process, port, prefix, log)


def command(repository: Path, port: int, prefix: str) -> list[str]:
    """The command line; each option that isn't plain has its reason."""
    return [
        str(install.program()),
        f"--model-repository={repository}",
        f"--backend-directory={install.backends()}",
        "--model-control-mode=explicit",  # nothing is loaded or unloaded but by its API
        "--disable-auto-complete-config",  # the files say all; else each model starts twice
        "--http-address=127.0.0.1",
        f"--http-port={port}",
        "--allow-grpc=false",  # its HTTP streams too (generate_stream)
        "--allow-metrics=false",  # a third port; models/NAME/stats has the same figures
        f"--backend-config=python,shm-region-prefix-name={prefix}",  # so that we can clean up
    ]


def variables() -> dict[str, str]:
    """The environment: the backend takes the first `python3` on PATH for its models, which write
    no compiled files into the repository (a model whose folder changed is loaded anew)."""
    kept = {name: value for name, value in os.environ.items() if name not in OWN_LIBRARY}
    own = str(environment.venv_python(install.venv()).parent)
    path = f"{own}{os.pathsep}{kept.get('PATH', os.defpath)}"
    return {**kept, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}


def end_with_parent() -> None:
    """In the child, before the program starts: the kernel asks it to end with its parent."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
