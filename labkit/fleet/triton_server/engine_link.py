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
from labkit.serving.messages import (
    Connected,
    EngineConfig,
    Failed,
    FromEngine,
    Ready,
    Stop,
    ToEngine,
)

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
        self.process = self.context = self.inbox = self.outbox = self.listener = None
        self.folder = self.end = ""  # `end`: why it is over
        self.said: Ready | Failed | None = None
        self.first, self.closing = threading.Event(), threading.Event()
        self.sending = threading.Lock()  # a socket belongs to one thread at a time

    def start(self) -> Ready:
        """Waits until the model is loaded. Raises EngineFailed, and nothing is left then."""
        try:
            self.bind()
            self.begin()
            self.first.wait()
            if not isinstance(self.said, Ready):
                raise EngineFailed(self.said.reason if self.said else self.end)
            return self.said
        except BaseException as error:
            self.close()
            if isinstance(error, EngineFailed | OSError | zmq.ZMQError):
                told = f"the engine can't serve {self.config.model!r}: {error}"
                raise EngineFailed(told) from None
            raise

    def bind(self) -> None:
        """A socket for each direction, in a folder that only this user can read."""
        self.folder = tempfile.mkdtemp(prefix="labkit-")
        self.context = zmq.Context()
        self.inbox, self.outbox = self.context.socket(zmq.PUSH), self.context.socket(zmq.PULL)
        self.config.inbox, self.config.outbox = f"ipc://{self.folder}/in", f"ipc://{self.folder}/out"
        self.inbox.set_hwm(MOST_MESSAGES)
        self.outbox.set_hwm(MOST_MESSAGES)
        self.inbox.bind(self.config.inbox)
        self.outbox.bind(self.config.outbox)

    def begin(self) -> None:
        """Starts the process, and the thread that listens to it."""
        own = {name: value for name, value in os.environ.items() if name not in ASTRAY}
        self.process = subprocess.Popen(
            [self.python, "-m", "labkit.serving.engine_process"],
            stdin=subprocess.PIPE, cwd=paths.repo_root(), env=own,
        )  # fmt: skip
        self.process.stdin.write(msgspec.json.encode(self.config) + b"\n")
        self.process.stdin.flush()
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

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
        """The thread. However it ends, whoever waits for the engine is told."""
        try:
            while not self.closing.is_set() and self.process.poll() is None:
                self.hear()
            self.hear()  # what it said last
            self.end = f"the engine ended with status {self.process.returncode}"
        except Exception as error:  # nobody could hear it any more
            self.process.kill()
            self.end = f"what the engine said could not be taken: {error!r}"
        self.first.set()
        if not self.closing.is_set():
            self.on_end(self.end)

    def hear(self) -> None:
        """Hands on what there is; waits a little where there is nothing."""
        while not self.closing.is_set() and self.outbox.poll(LISTEN_MS):
            self.take(messages.decode_from_engine(self.outbox.recv()))

    def take(self, message: FromEngine) -> None:
        if isinstance(message, Connected):
            self.remove_folder()
        elif isinstance(message, Ready | Failed):
            self.said = message
            self.first.set()
        else:
            self.on_message(message)

    def remove_folder(self) -> None:
        """Once both sockets are connected nobody needs their files, as in `homes.ProcessHome`."""
        with self.sending:
            if self.inbox.poll(1000, zmq.POLLOUT):
                shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Ends the engine, whatever is open, and frees what it held."""
        self.closing.set()
        if self.process is not None:
            self.end_process()
        if self.listener not in (None, threading.current_thread()):
            self.listener.join()
        if self.context is not None:
            self.context.destroy(linger=0)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def end_process(self) -> None:
        with contextlib.suppress(zmq.ZMQError), self.sending:
            self.inbox.send(messages.encode(Stop()), zmq.NOBLOCK)
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # it ends with its input, however busy it is
        try:
            self.process.wait(LAST_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

