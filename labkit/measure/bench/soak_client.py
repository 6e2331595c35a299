"""The clients of `bench soak`: each sends one `Ask`, and behaves as its kind does."""

import asyncio
import contextlib
import json
import socket
from urllib.parse import urlsplit

import aiohttp
import psutil

from labkit.measure.bench.soak_answers import (
    Fault,
    Result,
    check_whole,
    read_stream,
    refusal,
    shown,
)
from labkit.measure.bench.soak_asks import KILLS, Ask

RETRIES = 5  # of a request that no engine takes
REASONS = {"error": "engine lost", "abort": "cancelled", "deadline": "deadline"}
LOOK_S = 0.25  # between two looks for a request of one's own


class Client:
    """Plays asks against the server at `url`. No ask takes longer than `timeout_s`."""

    def __init__(self, session: aiohttp.ClientSession, url: str, timeout_s: float):
        self.session, self.url, self.timeout_s = session, url, timeout_s

    async def play(self, ask: Ask) -> Result:
        result = Result(ask, "")
        try:
            async with asyncio.timeout(self.timeout_s):
                result.outcome = await self.behave(ask, result)
        except TimeoutError:
            result.outcome, result.told = "hung", f"no end within {self.timeout_s:g} s"
        except Fault as fault:
            result.outcome, result.told = fault.args
        except aiohttp.ClientPayloadError as error:
            result.outcome, result.told = "broken off", str(error)
        except (aiohttp.ClientError, OSError) as error:
            result.outcome, result.told = "no answer", f"{type(error).__name__}: {error}"
        return result

    async def behave(self, ask: Ask, result: Result) -> str:
        match ask.kind:
            case "leaves early":
                return await self.leave_early(ask, result)
            case "half a body":
                return await self.send_half(ask)
            case "never reads":
                return await self.never_read(ask)
            case "looks":
                return await self.look(ask)
            case "cancels" | "cancels other":
                return await self.cancel(ask, result)
            case kind if kind == KILLS:
                return await self.kill()
        return await self.request(ask, result)

    async def request(self, ask: Ask, result: Result) -> str:
        """Asks, and asks again while there is no engine."""
        for result.retries in range(RETRIES + 1):
            outcome, pause = await self.once(ask, result)
            if outcome != "engine down" or result.retries == RETRIES:
                break
            await asyncio.sleep(pause)
        return outcome

    async def once(self, ask: Ask, result: Result) -> tuple[str, float]:
        """The outcome, and how long to wait before the next try."""
        async with self.session.request(
            ask.method, ask.path, data=ask.body, headers=ask.headers
        ) as response:
            if response.status == 202 in ask.statuses:
                return await self.follow((await response.json())["id"], result), 0
            if response.status != 200:
                return refusal(ask, response.status, response.headers, await response.read())
            if 200 not in ask.statuses:
                raise Fault("wrong status", f"200 instead of {ask.statuses} for {shown(ask)}")
            if not ask.stream:
                return check_whole(ask, json.loads(await response.read()), result), 0
            return await read_stream(ask, response, result), 0

    async def follow(self, request_id: str, result: Result) -> str:
        """Asks how a request goes on that has no connection, to its end."""
        while (seen := await self.json(f"/v1/requests/{request_id}")).get("state") != "finished":
            if "error" in seen:  # so many have ended since that it is forgotten
                return "left"
            await asyncio.sleep(LOOK_S)
        for reason, outcome in REASONS.items():
            if reason in seen["finish_reason"].split(","):
                return outcome
        result.num_tokens = seen["output_tokens"]
        return "answer"

    # ---- impolite ones

    async def leave_early(self, ask: Ask, result: Result) -> str:
        """It may have its answer before it leaves."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ask.pause_s / 4):
                return (await self.once(ask, result))[0]
        return "left"

    async def send_half(self, ask: Ask) -> str:
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(head_of(ask, self.address) + ask.body[: len(ask.body) // 2])
        await asyncio.sleep(ask.pause_s)
        writer.close()
        return "left"

    async def never_read(self, ask: Ask) -> str:
        """Waits, without reading, until the server has given it up."""
        loop = asyncio.get_running_loop()
        with socket.socket() as connection:
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await loop.sock_connect(connection, self.address)
            await loop.sock_sendall(connection, head_of(ask, self.address) + ask.body)
            absent = 0
            while absent < 4:
                await asyncio.sleep(LOOK_S)
                absent = 0 if await self.find(ask.label) else absent + 1
        return "not read"

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname, parts.port

    async def look(self, ask: Ask) -> str:
        async with self.session.get(ask.path) as response:
            if response.status not in (200, 503 if ask.path == "/health" else 200):
                raise Fault("wrong status", f"{response.status} for GET {ask.path}")
            if ask.path == "/live":
                for _ in range(ask.after):
                    await response.content.readuntil(b"\n\n")
            else:
                await response.read()
        return "answer"

    async def kill(self) -> str:
        """Ends the engine as `kill -9` does, once there is one."""
        while not (pid := (await self.json("/health"))["engine_pid"]):
            await asyncio.sleep(LOOK_S)
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just been killed by another
            psutil.Process(pid).kill()
        return "killed"

    # ---- DELETE

    async def cancel(self, ask: Ask, result: Result) -> str:
        """Sends a request, and while it is open ends it, or any other, by two DELETE at once."""
        answering = asyncio.create_task(self.request(ask, result))
        try:
            await asyncio.wait({answering}, timeout=ask.pause_s / 2)
            found = await self.find(ask.label if ask.kind == "cancels" else None, ask.number)
            if found:
                both = await asyncio.gather(self.delete(found), self.delete(found))
                if sum(both) > 1:
                    raise Fault("wrong answer", f"two DELETE of {found} both cancelled it")
            return await answering
        finally:
            answering.cancel()

    async def delete(self, request_id: str) -> bool:
        async with self.session.delete(f"/v1/requests/{request_id}") as response:
            body = await response.json()
            if response.status == 404:  # so many have ended since that it is forgotten
                return False
            if response.status != 200 or body["state"] != "finished":
                raise Fault("wrong answer", f"DELETE {request_id}: {response.status} {body}")
            return body["cancelled"]

    async def find(self, label: str | None, number: int = 0) -> str | None:
        """The id of an open request with this label; of any, without one."""
        found = [
            one["id"] for one in (await self.json("/v1/requests"))["data"]
            if label is None or one["label"] == label
        ]  # fmt: skip
        return found[number % len(found)] if found else None

    async def json(self, path: str) -> dict:
        async with self.session.get(path) as response:
            return await response.json()


def head_of(ask: Ask, address: tuple[str, int]) -> bytes:
    return (
        f"POST {ask.path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(ask.body)}\r\n\r\n"
    ).encode()
