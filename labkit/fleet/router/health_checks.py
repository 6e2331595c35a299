"""Asks each replica now and then whether it is well, beside the requests and not on their way."""

import asyncio
import logging
from contextlib import suppress

import aiohttp
import msgspec

from labkit.fleet.router.backends import Backend
from labkit.fleet.router.failures import reason
from labkit.fleet.router.replies import MOST_LISTED, short_body
from labkit.serving.errors import UNREADABLE

MOST_SILENT = 2  # checks in a row without an answer: one may come late on a busy machine
MODELS_EVERY = 10  # checks: a replica may load another model
log = logging.getLogger("labkit.router")


class Listed(msgspec.Struct):
    id: str


class Models(msgspec.Struct):
    data: list[Listed]


class HealthChecks:
    """Keeps `is_up`, `detail` and `models` of each backend; `api_key` is that of the replicas.

    Down at once: a refused connection, or an answer from 500 on (503 while it loads or drains;
    what it has it may still finish). Down after MOST_SILENT checks without an answer. A 404 is
    fine: it lives, and has no /health.
    """

    def __init__(
        self, backends: list[Backend], session: aiohttp.ClientSession, interval: float = 1.0,
        timeout: float = 2.0, api_key: str | None = None,
    ):  # fmt: skip
        self.backends, self.session = backends, session
        self.interval, self.timeout = interval, timeout
        self.headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self.silent = dict.fromkeys(backends, 0)

    async def run(self) -> None:
        """Checks all of them for ever, each in its own time: one that is slow delays no other."""
        async with asyncio.TaskGroup() as group:
            for backend in self.backends:
                group.create_task(self.watch(backend))

    async def watch(self, backend: Backend) -> None:
        while True:
            for turn in range(MODELS_EVERY):
                await asyncio.sleep(self.interval)
                try:
                    await self.check(backend, with_models=turn == 0)
                except Exception:  # of a mistake here: no check may end the router
                    log.exception("a health check failed", extra={"replica": backend.name})

    async def check_all(self) -> None:
        """Each once, at the same time."""
        await asyncio.gather(*(self.check(backend, True) for backend in self.backends))

    async def check(self, backend: Backend, with_models: bool) -> None:
        try:
            async with self.get(backend, "/health") as response:
                self.silent[backend] = 0
                is_well = response.status < 500
                self.note(backend, is_well, f"/health says {response.status}")
            if is_well and (with_models or backend.models is None):
                await self.read_models(backend)
        except TimeoutError:
            self.silent[backend] += 1
            if self.silent[backend] >= MOST_SILENT:
                times = f"{self.silent[backend]} times"
                self.note(backend, False, f"/health doesn't answer in {self.timeout:g} s, {times}")
                self.move_on(backend)
        except (aiohttp.ClientError, OSError) as error:
            self.note(backend, False, f"/health can't be asked: {reason(error)}")

    def get(self, backend: Backend, path: str):
        limit = aiohttp.ClientTimeout(total=self.timeout)
        return self.session.get(backend.url + path, timeout=limit, headers=self.headers)

    def note(self, backend: Backend, is_up: bool, detail: str) -> None:
        if is_up != backend.is_up:
            told = {"replica": backend.name, "detail": detail}
            level = logging.INFO if is_up else logging.WARNING
            log.log(level, "replica is up" if is_up else "replica is down", extra=told)
        backend.is_up, backend.detail = is_up, detail

    def move_on(self, backend: Backend) -> None:
        """Ends those requests that wait for a silent replica's first byte and that another one
        would get. The others go on waiting: it may only be slow."""
        for flight in [*backend.flights]:
            if flight.may_move():
                flight.end(f"it went silent: {backend.detail}")

    async def read_models(self, backend: Backend) -> None:
        """Which models it has; None, and any is sent to it, if it doesn't tell (it has no such
        list, or wants a key that isn't the router's). Without an answer what was known holds."""
        try:
            async with self.get(backend, "/v1/models") as response:
                body = await short_body(response, MOST_LISTED) if response.status == 200 else None
        except (TimeoutError, aiohttp.ClientError, OSError):
            return
        backend.models = None
        with suppress(*UNREADABLE):
            listed = msgspec.json.decode(body or b"", type=Models)
            backend.models = frozenset(one.id for one in listed.data)
