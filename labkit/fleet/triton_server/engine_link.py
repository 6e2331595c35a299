"""labkit's engine process, as a model of Triton Inference Server holds it.

It is the process that labkit's own server starts, spoken to with the same messages over the same
sockets; only who asks is another. It runs in the Python that has torch, which the server's
Python need not have.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence

import msgspec
import zmq

from labkit import paths
from labkit.serving import messages
from labkit.serving.messages import EngineConfig, Failed, FromEngine, Ready, Stop, ToEngine

MOST_MESSAGES = 10_000  # on their way to the engine, or from it
LISTEN_MS = 100  # how often it is looked whether the process lives
LAST_S = 5.0  # for an engine that was asked to stop
ASTRAY = ("LD_LIBRARY_PATH", "PYTHONHOME")  # of the server, and not the engine's


class EngineFailed(RuntimeError):
    """The engine can't be started, or has ended."""


class EngineLink:
    """Starts the engine, sends it messages, and hands on what it says, in a thread of its own.

    `on_end` is told once why the engine is gone; it isn't after `close`. Nobody watches for an
    engine that lives and hangs, as labkit's own server does, nor starts another.
    """

    def __init__(
        self,
        config: EngineConfig,
        python: str,
        on_message: Callable[[FromEngine], None],
        on_end: Callable[[str], None],
    ):
        self.config, self.python, self.on_message, self.on_end = config, python, on_message, on_end
        self.said: Ready | Failed | None = None
        self.first, self.closing = threading.Event(), threading.Event()
        self.sending = threading.Lock()  # a socket belongs to one thread at a time

    def start(self) -> Ready:
        """Waits until the model is loaded. Raises EngineFailed."""
        self.folder = tempfile.mkdtemp(prefix="labkit-")
        self.context = zmq.Context()
        self.inbox, self.outbox = self.context.socket(zmq.PUSH), self.context.socket(zmq.PULL)
        self.config.inbox, self.config.outbox = f"ipc://{self.folder}/in", f"ipc://{self.folder}/out"
        self.inbox.set_hwm(MOST_MESSAGES)
        self.outbox.set_hwm(MOST_MESSAGES)
        self.inbox.bind(self.config.inbox)
        self.outbox.bind(self.config.outbox)
        own = {name: value for name, value in os.environ.items() if name not in ASTRAY}
        self.process = subprocess.Popen(
            [self.python, "-m", "labkit.serving.engine_process"],
            stdin=subprocess.PIPE, cwd=paths.repo_root(), env=own,
        )  # fmt: skip
        self.process.stdin.write(msgspec.json.encode(self.config) + b"\n")
        self.process.stdin.flush()
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        self.first.wait()
        if not isinstance(self.said, Ready):
            reason = self.said.reason if self.said else "it ended while it loaded"
            self.close()
            raise EngineFailed(f"the engine can't serve {self.config.model!r}: {reason}")
        return self.said

    def send(self, batch: Sequence[ToEngine]) -> None:
        """Puts messages on their way, all or none: as the parts of one ZeroMQ message they are
        all there when the engine takes the first, so that none of them misses the next step.

        Raises EngineFailed when it has not taken its messages for so long that no more fit.
        """
        try:
            with self.sending:
                self.inbox.send_multipart([messages.encode(one) for one in batch], zmq.NOBLOCK)
        except zmq.Again:
            raise EngineFailed("the engine takes no messages; it may hang") from None

    def listen(self) -> None:
        while not self.closing.is_set():
            if self.outbox.poll(LISTEN_MS):
                self.take(messages.decode_from_engine(self.outbox.recv()))
            elif self.process.poll() is not None:
                break
        self.first.set()
        if not self.closing.is_set():
            self.on_end(f"the engine ended with status {self.process.returncode}")

    def take(self, message: FromEngine) -> None:
        if isinstance(message, Ready | Failed):
            self.said = message
            self.first.set()
        else:
            self.on_message(message)

    def close(self) -> None:
        """Ends the engine, whatever is open, and frees what it held."""
        self.closing.set()
        with contextlib.suppress(zmq.ZMQError), self.sending:
            self.inbox.send(messages.encode(Stop()), zmq.NOBLOCK)
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # it ends with its input, however busy it is
        try:
            self.process.wait(LAST_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if threading.current_thread() is not self.listener:
            self.listener.join()
        self.context.destroy(linger=0)
        shutil.rmtree(self.folder, ignore_errors=True)

