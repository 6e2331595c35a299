"""One soak from the first process to the last: start, send everything, come to rest, end."""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from labkit.console import Stages
from labkit.measure.bench import soak_asks, soak_promises
from labkit.measure.bench.drive import BenchError, Tell
from labkit.measure.bench.soak_answers import Result
from labkit.measure.bench.soak_asks import Ask
from labkit.measure.bench.soak_client import Client
from labkit.measure.bench.soak_promises import Ending, Sample
from labkit.measure.bench.soak_server import Server, look
from labkit.serving.views import FRESH_S


async def soak(
    count: int, concurrency: int, kills: int, seed: int, timeout_s: float, stream=None
) -> tuple[list[Result], Ending]:
    """Runs all of it on a server of its own."""
    stages = Stages(3, stream or sys.stderr)
    asks = soak_asks.mix(count, seed, kills)
    with tempfile.TemporaryDirectory(prefix="labkit-soak-") as folder:
        server = Server(Path(folder))
        try:
            with stages.stage("a server starts"):
                await server.ready()
                start = await first_sample(server)
            with stages.stage(f"{count:,} requests") as tell_progress:
                results, samples = await send(server, asks, concurrency, timeout_s, tell_progress)
            with stages.stage("what is left over"):
                return results, await settle(server, start, samples, len(results))
        finally:
            server.kill()


async def first_sample(server: Server) -> Sample:
    """What the processes take after a first request of each kind, before the soak."""
    async with server.session() as session:
        await one_more(session)
        async with session.post("/v1/chat/completions", json=soak_asks.SAYS) as response:
            await response.read()
    async with server.session() as session:
        return await server.sample(session, 0)


async def one_more(session: aiohttp.ClientSession) -> None:
    async with session.post(
        "/v1/completions", json={"prompt": "one more", "max_tokens": 1}
    ) as response:
        if response.status != 200:
            raise BenchError(f"a plain request got {response.status}: {await response.text()}")


async def send(
    server: Server, asks: Sequence[Ask], concurrency: int, timeout_s: float, tell: Tell
) -> tuple[list[Result], list[Sample]]:
    """All asks, by so many clients one after another; samples each second."""
    rest, results, samples = iter(asks), [], []

    async def client() -> None:
        for ask in rest:
            results.append(await clients.play(ask))
            faults = sum(not one.is_fine for one in results)
            told = f", {faults} faults" if faults else ""
            tell(progress(len(results), len(asks)) + told)

    async def watch() -> None:
        while True:
            samples.append(await server.sample(watching, len(results)))
            await asyncio.sleep(1)

    async with server.session() as session, server.session() as watching:
        clients = Client(session, server.url, timeout_s)
        watcher = asyncio.create_task(watch())
        sending = asyncio.gather(*(client() for _ in range(concurrency)))
        try:
            await asyncio.wait({sending, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if watcher.done():  # the server is gone
                raise BenchError(f"the server has ended: {server.last_words()}")
            sending.result()
        finally:
            sending.cancel()
            watcher.cancel()
            await asyncio.gather(sending, watcher, return_exceptions=True)
    return results, samples


def progress(done: int, total: int, width: int = 20) -> str:
    filled = width * done // total
    return f"[{'#' * filled}{'.' * (width - filled)}] {done:,} of {total:,}"


async def settle(server: Server, start: Sample, samples: list[Sample], ended: int) -> Ending:
    """Waits for the server to come to rest, looks at it, and ends it."""

    async def is_ready() -> bool:
        return (await look(session, "/health"))["status"] == "ready"

    async with server.session() as session:
        await server.until(is_ready, "a ready engine")
        open_ids = await at_rest(session)
        await one_more(session)
        await asyncio.sleep(2 * FRESH_S)  # the page may show what was, so long
        state, metrics = await look(session, "/live"), await look(session, "/metrics")
    last = await closed(server, start, ended)
    status, left = await server.end()
    return Ending(
        start, [*samples, last], last, metrics, state, open_ids, status, left, server.tracebacks()
    )


async def at_rest(session: aiohttp.ClientSession, patience: int = 100) -> list[str]:
    """The requests that are still open when nothing has changed for 20 s; mostly none, soon."""
    for _ in range(patience):
        found = [one["id"] for one in (await look(session, "/v1/requests"))["data"]]
        if not found and (await look(session, "/live"))["kv_usage"] == 0:
            break
        await asyncio.sleep(0.2)
    return found


async def closed(server: Server, start: Sample, ended: int, patience: int = 50) -> Sample:
    """The last sample, once its connections are closed, or time is up."""
    for _ in range(patience):
        async with server.session() as session:
            sample = await server.sample(session, ended)
        if sample.api_fds <= start.api_fds + soak_promises.SPARE_FDS:
            break
        await asyncio.sleep(0.2)
    return sample
