"""The engine as the API sees it, over all its lives: asked, listened to, watched, started again."""

import asyncio
import gc
import itertools
import logging
import time
from collections.abc import Callable

import zmq

from labkit.serving.homes import HOMES, EngineBusy
from labkit.serving.messages import (
    Abort,
    Aborted,
    Accepted,
    Add,
    EngineConfig,
    Failed,
    FromEngine,
    Look,
    Ready,
    Refused,
    Sight,
    Step,
)

LONGEST_PAUSE_S = 30.0
FIRST_PAUSE_S = 0.5
LAST_WORDS_S = 1.0  # for a message that was on its way when the engine ended
log = logging.getLogger("labkit.engine")


class EngineDown(RuntimeError):
    """There is no engine that could answer now; another one is on its way."""


class EngineLost(EngineDown):
    """The engine ended while it was asked: that may be the doing of what it was asked."""


class LoadFailed(RuntimeError):
    """The model could not be loaded when the server started."""


class RequestRefused(ValueError):
    """The engine refuses a request: with `busy` for now, else for good."""

    def __init__(self, reason: str, busy: bool):
        super().__init__(reason)
        self.busy = busy


class EngineClient:
    """Sends requests to the engine, and hands each `Step` to `on_step`.

    When the engine ends, `on_death` gets the reason at once, and a new one is started: after half
    a second, and twice as long after each further failure. An engine that has open requests
    (`has_open`) and says nothing for `step_timeout` seconds is taken for dead, and killed.
    """

    def __init__(
        self,
        config: EngineConfig,
        home: str = "process",
        *,
        on_step: Callable[[Step], None],
        on_death: Callable[[str], None],
        has_open: Callable[[], bool],
        step_timeout: float = 30.0,
    ):
        self.config, self.kind, self.step_timeout = config, HOMES[home], step_timeout
        self.on_step, self.on_death, self.has_open = on_step, on_death, has_open
        self.status, self.detail = "starting", "the model is being loaded"
        self.info: Ready | None = None
        self.home = None
        self.on_ready: Callable[[Ready], None] = lambda info: None
        self.on_restart: Callable[[], None] = lambda: None
        self.num_restarts = 0
        self.heard = time.monotonic()  # when it last said something, or had nothing to say
        self.calls = itertools.count(1)
        self.answers: dict[int | str, asyncio.Future] = {}  # by call, or by the id of an `Add`

    # ---- asking

    async def add(self, asked: Add) -> None:
        """Puts a prompt in line. Raises RequestRefused, EngineDown."""
        answer = await self.ask(asked.request_id, asked)
        if isinstance(answer, Refused):
            raise RequestRefused(answer.reason, answer.busy)

    async def abort(self, request_ids: list[str]) -> list[str]:
        """Ends requests; returns those that were open until then. Raises EngineDown."""
        call = next(self.calls)
        return (await self.ask(call, Abort(request_ids, call))).request_ids

    def abort_soon(self, *request_ids: str) -> None:
        """Ends requests; nobody waits for the answer, and with the engine they end anyway."""
        if self.status == "ready" and request_ids:
            try:
                self.home.send(Abort(list(request_ids)))
            except EngineBusy:
                log.warning("an abort was lost: the engine takes no messages")

    async def look(self) -> Sight:
        """What the engine holds now. Raises EngineDown."""
        call = next(self.calls)
        return await self.ask(call, Look(call))

    async def ask(self, key: int | str, message) -> FromEngine:
        """Sends a message, and waits for the answer to it."""
        if self.status != "ready":
            raise EngineDown(self.detail)
        if not (self.answers or self.has_open()):
            self.heard = time.monotonic()
        answer = self.answers[key] = asyncio.get_running_loop().create_future()
        try:
            self.home.send(message)
            return await answer
        except EngineBusy as error:
            raise EngineDown(str(error)) from None
        finally:
            self.answers.pop(key, None)

    def receive(self, message: FromEngine) -> None:
        """Takes what the engine says."""
        self.heard = time.monotonic()
        match message:
            case Step():
                self.on_step(message)
            case Ready() | Failed():
                if not self.ready.done():
                    self.ready.set_result(message)
            case Accepted() | Refused():
                self.settle(message.request_id, message)
            case Aborted() | Sight():
                self.settle(message.call, message)

    def settle(self, key: int | str, message: FromEngine) -> None:
        answer = self.answers.get(key)
        if answer is not None and not answer.done():
            answer.set_result(message)

    # ---- its lives

    async def run(self) -> None:
        """Keeps an engine alive until this is cancelled. LoadFailed if the first can't load."""
        failures = 0
        while True:
            began = time.monotonic()
            reason = await self.live()
            if self.info is None:
                raise LoadFailed(reason)
            lasted = time.monotonic() - began
            failures = 0 if lasted > 2 * LONGEST_PAUSE_S else failures + 1
            pause = min(FIRST_PAUSE_S * 2 ** (failures - 1), LONGEST_PAUSE_S) if failures else 0
            log.error("the engine is gone", extra={"reason": reason, "restart_in_s": pause})
            self.detail = f"{reason}; another one is started in {pause:g} s"
            await asyncio.sleep(pause)
            self.num_restarts += 1
            self.on_restart()

    async def live(self) -> str:
        """One life of an engine; returns how it ended."""
        self.ready = asyncio.get_running_loop().create_future()
        self.home = self.kind(self.config, self.receive)
        watching = []
        try:
            try:
                await self.home.start()
            except (OSError, zmq.ZMQError) as error:  # too few files, say: for now, perhaps
                return f"the engine could not be started: {error}"
            died = asyncio.create_task(self.home.died())
            watching.append(died)
            await asyncio.wait({self.ready, died}, return_when=asyncio.FIRST_COMPLETED)
            if not self.ready.done():
                await asyncio.wait({self.ready}, timeout=LAST_WORDS_S)
            if not self.ready.done():
                return f"the engine ended while it loaded: {died.result()}"
            said = self.ready.result()
            if isinstance(said, Failed):
                return said.reason
            self.info, self.status, self.detail = said, "ready", "serving"
            self.on_ready(said)
            log.info("engine ready", extra={"engine_pid": self.home.pid, "load_s": said.seconds})
            hung = asyncio.create_task(self.hangs())
            watching.append(hung)
            await asyncio.wait({died, hung}, return_when=asyncio.FIRST_COMPLETED)
            reason = died.result() if died.done() else hung.result()
            self.mourn(f"the engine failed: {reason}")
            return reason
        finally:
            for task in watching:
                task.cancel()
            await self.home.kill()
            gc.collect()  # an engine in this process goes with all that it held

    def mourn(self, reason: str) -> None:
        """Tells everybody who waits for this engine, at once."""
        self.status, self.detail = "restarting", f"{reason}; another one is being started"
        self.give_up(EngineLost(self.detail))
        self.on_death(reason)

    def give_up(self, error: EngineDown) -> None:
        """Whoever waits for an answer of the engine gets this error."""
        for answer in [*self.answers.values()]:
            if not answer.done():
                answer.set_exception(error)

    async def hangs(self) -> str:
        """Waits until the engine has work, and has said nothing for too long."""
        pause = min(self.step_timeout / 4, 1.0)
        while True:
            began = time.monotonic()
            await asyncio.sleep(pause)
            late = time.monotonic() - began - pause  # this process was suspended: it heard nothing
            self.heard += max(late, 0)
            silent = time.monotonic() - self.heard
            if not (self.answers or self.has_open()):
                self.heard = time.monotonic()
            elif silent > self.step_timeout:
                return f"no step has finished in {self.step_timeout:g} s (--step-timeout)"
