"""Where the engine lives, seen from the API: in a process of its own, in a thread, or in here.

All three take messages with `send`, hand messages out by `deliver` (called in the API's event
loop), and run the same `engine_loop`. Only a process can be killed and started again; the other
two exist to be compared with it.
"""

import asyncio
import logging
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import zmq
import zmq.asyncio

from labkit.serving import engine_process, messages
from labkit.serving.messages import Connected, EngineConfig, Failed, FromEngine, Stop, ToEngine

Deliver = Callable[[FromEngine], None]
log = logging.getLogger("labkit.engine")
MOST_MESSAGES = 10_000  # on their way to an engine, or from it


class EngineBusy(RuntimeError):
    """The engine has not taken its messages for so long that no more fit."""


class Home(ABC):
    """One life of an engine. `start` once, then `send`, until `died` says why it is over."""

    def __init__(self, config: EngineConfig, deliver: Deliver):
        self.config, self.deliver = config, deliver

    @abstractmethod
    async def start(self) -> None:
        """Begins to load. `Ready` or `Failed` is the first message that is delivered."""

    @abstractmethod
    def send(self, message: ToEngine) -> None:
        """Puts a message on its way. Raises EngineBusy."""

    @abstractmethod
    async def died(self) -> str:
        """Waits for the end of the engine; says how it ended."""

    @abstractmethod
    async def kill(self) -> None:
        """Ends it at once, and frees what it held."""

    pid: int | None = None


class ProcessHome(Home):
    """The engine in a process of its own, messages as msgpack over ZeroMQ."""

    module = "labkit.serving.engine_process"  # what it runs
    process = reading = context = inbox = outbox = None  # it may end while it is being started
    folder = ""

    async def start(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="labkit-")  # readable for this user only
        self.context = zmq.Context()
        waiting = zmq.asyncio.Context(self.context)  # the same, for sockets that are awaited
        self.inbox, self.config.inbox = self.bind(self.context.socket(zmq.PUSH), "to-engine")
        self.outbox, self.config.outbox = self.bind(waiting.socket(zmq.PULL), "from-engine")
        command = [sys.executable, "-m", self.module]
        self.process = await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2],
            start_new_session=True,  # a terminal's Ctrl-C is not for it, from its first moment on
        )  # fmt: skip
        self.pid = self.process.pid
        self.process.stdin.write(msgspec.json.encode(self.config) + b"\n")
        self.reading = asyncio.create_task(self.read())

    def bind(self, socket: zmq.Socket, name: str) -> tuple[zmq.Socket, str]:
        socket.linger = 0
        socket.set_hwm(MOST_MESSAGES)
        if zmq.has("ipc"):
            address = f"ipc://{self.folder}/{name}"
            socket.bind(address)
            return socket, address
        return socket, f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"

    async def read(self) -> None:
        while True:
            message = messages.decode_from_engine(await self.outbox.recv())
            if isinstance(message, Connected):
                await self.remove_folder()
            else:
                self.deliver(message)

    async def remove_folder(self) -> None:
        """Once both sockets are connected nobody needs their files: nothing is left to clean up,
        whoever is killed. A socket is connected when it can be written to."""
        while not self.inbox.poll(0, zmq.POLLOUT) and self.process.returncode is None:
            await asyncio.sleep(0.01)
        shutil.rmtree(self.folder, ignore_errors=True)

    def send(self, message: ToEngine) -> None:
        try:
            self.inbox.send(messages.encode(message), zmq.NOBLOCK)  # it never holds the API up
        except zmq.Again:
            raise EngineBusy("the engine takes no messages; it may hang") from None

    async def died(self) -> str:
        ended = asyncio.create_task(self.process.wait())
        await asyncio.wait({ended, self.reading}, return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():  # it lives, and nobody could hear it any more
            ended.cancel()
            log.error("a message could not be taken", exc_info=self.reading.exception())
            return f"its message could not be taken: {self.reading.exception()!r}"
        status = ended.result()
        if status < 0:
            return f"it was ended by signal {-status}"
        return f"it ended with status {status}"

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        await asyncio.sleep(0)  # what it said last is read before the sockets go
        if self.reading is not None:
            self.reading.cancel()
        for socket in (self.inbox, self.outbox):
            if socket is not None:
                socket.close()
        if self.context is not None:
            self.context.destroy(linger=0)
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


class ThreadHome(Home):
    """The engine in a thread of the API process: no copies, but one interpreter for both."""

    async def start(self) -> None:
        self.inbox: queue.SimpleQueue = queue.SimpleQueue()
        self.pid, self.over = os.getpid(), asyncio.get_running_loop().create_future()
        self.loop = asyncio.get_running_loop()
        threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        try:
            status = engine_process.serve(self.config, self.receive, self.hand_over)
            end = f"it ended with status {status}"
        except Exception as error:  # what would end a process ends this thread
            end = f"it failed: {error!r}"
        self.in_loop(lambda: self.over.done() or self.over.set_result(end))

    def receive(self, wait: bool) -> ToEngine | None:
        try:
            return self.inbox.get(block=wait)
        except queue.Empty:
            return None

    def hand_over(self, message: FromEngine) -> None:
        self.in_loop(self.deliver, message)

    def in_loop(self, work: Callable, *arguments) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self.loop.call_soon_threadsafe(work, *arguments)

    def send(self, message: ToEngine) -> None:
        if self.inbox.qsize() >= MOST_MESSAGES:
            raise EngineBusy("the engine takes no messages; it may hang")
        self.inbox.put(message)

    async def died(self) -> str:
        return await asyncio.shield(self.over)

    async def kill(self) -> None:
        if not self.over.done():
            self.inbox.put(Stop())
            await asyncio.wait([self.over], timeout=5)


class InProcessHome(Home):
    """The engine in the API's own event loop: while it does a step, nothing else is done."""

    async def start(self) -> None:
        self.pid, self.over = os.getpid(), asyncio.get_running_loop().create_future()
        self.wake = asyncio.Event()
        self.engine_loop = None
        self.task = asyncio.create_task(self.work())

    async def work(self) -> None:
        await asyncio.sleep(0)
        try:
            self.engine_loop, ready = engine_process.load(self.config)
            self.deliver(ready)
            while True:
                await self.wake.wait()
                if self.engine_loop.has_work:
                    self.deliver(self.engine_loop.step())
                    await asyncio.sleep(0)  # others have their turn between two steps
                else:
                    self.wake.clear()
        except Exception as error:  # what would end a process ends this task
            if self.engine_loop is None:
                self.deliver(Failed(" ".join(str(error).split())))
            self.over.set_result(f"it failed: {error!r}")

    def send(self, message: ToEngine) -> None:
        answer = self.engine_loop.handle(message)
        self.wake.set()
        if answer is not None:
            self.deliver(answer)

    async def died(self) -> str:
        return await asyncio.shield(self.over)

    async def kill(self) -> None:
        self.task.cancel()
        if not self.over.done():
            self.over.set_result("it was ended")


HOMES = {"process": ProcessHome, "thread": ThreadHome, "in-process": InProcessHome}
