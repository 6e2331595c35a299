"""The server of `bench soak`: a process of its own, and a sample of both its processes a second."""

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import psutil

from labkit import paths
from labkit.measure.bench.drive import BenchError
from labkit.measure.bench.soak_asks import OPTIONS
from labkit.measure.bench.soak_promises import Sample

PATIENCE_S = 300.0


class Server:
    """`python -m labkit.serving` with `OPTIONS`; what it says is kept in `folder`."""

    def __init__(self, folder: Path, options: tuple[str, ...] = OPTIONS):
        self.out, self.err = folder / "out.txt", folder / "err.txt"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "labkit.serving", *options], cwd=paths.repo_root(),
                stdin=subprocess.DEVNULL, stdout=out, stderr=err,
            )  # fmt: skip
        self.api, self.began = psutil.Process(self.process.pid), time.monotonic()
        self.family: set[psutil.Process] = set()  # all processes that it has started
        self.url = ""

    async def ready(self) -> str:
        """Its address, once requests are answered. Raises BenchError."""
        await self.until(self.printed, "its address")
        async with self.session() as session:

            async def is_ready() -> bool:
                return (await look(session, "/health"))["status"] == "ready"

            await self.until(is_ready, "a ready engine")
        return self.url

    async def printed(self) -> str | None:
        found = re.search(r"Open: (http://\S+)", self.out.read_text(encoding="utf-8"))
        self.url = found[1] if found else ""
        return self.url

    def session(self) -> aiohttp.ClientSession:
        """Connections to it: as many as are needed, none of which outlives the session."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2)
        limit = aiohttp.ClientTimeout(total=None)
        return aiohttp.ClientSession(self.url or None, connector=connector, timeout=limit)

    async def until(self, found: Callable, what: str, patience: float = PATIENCE_S):
        """Asks until the answer is true, and returns it. Raises BenchError."""
        last = time.monotonic() + patience
        while not (answer := await found()):
            if self.process.poll() is not None:
                raise BenchError(f"the server has ended: {self.last_words()}")
            if time.monotonic() > last:
                raise BenchError(f"the server has not, within {patience:g} s: {what}")
            await asyncio.sleep(0.1)
        return answer

    def last_words(self) -> str:
        return self.err.read_text(encoding="utf-8", errors="replace")[-500:] or "it said nothing"

    async def sample(self, session: aiohttp.ClientSession, ended: int) -> Sample:
        """Both processes now."""
        health = await look(session, "/health")
        self.family |= {*self.api.children(recursive=True)}
        api, engine = figures(self.api), {}
        if pid := health["engine_pid"]:
            try:
                engine = {"pid": pid} | figures(psutil.Process(pid))
            except psutil.NoSuchProcess:  # it has just been killed
                engine = {}
        return Sample(
            time.monotonic() - self.began, ended, health["open_requests"],
            **{f"api_{name}": value for name, value in api.items()},
            **{f"engine_{name}": value for name, value in engine.items()},
        )  # fmt: skip

    async def end(self) -> tuple[int | None, list[int]]:
        """Sends SIGTERM; returns the exit status and the processes that are left."""
        self.process.terminate()
        try:
            status = await asyncio.to_thread(self.process.wait, PATIENCE_S)
        except subprocess.TimeoutExpired:
            status = None
        _, left = await asyncio.to_thread(psutil.wait_procs, self.family, 10)
        return status, [one.pid for one in left if one.is_running()]

    def kill(self) -> None:
        """Ends it whatever it does; its engine ends with it."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def tracebacks(self) -> list[str]:
        """What the log says of errors that nothing handled."""
        text = self.err.read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if "Traceback" in line or "never retr" in line]


def figures(process: psutil.Process) -> dict[str, int]:
    with process.oneshot():
        return {
            "rss": process.memory_info().rss,
            "fds": process.num_fds(),
            "threads": process.num_threads(),
        }


async def look(session: aiohttp.ClientSession, path: str):
    """JSON of a path; text where it is none; of the live page its first state."""
    async with session.get(path) as response:
        if path == "/live":
            return json.loads((await response.content.readuntil(b"\n\n")).removeprefix(b"data: "))
        if response.content_type == "application/json":
            return await response.json()
        return await response.text()
