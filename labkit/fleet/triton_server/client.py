"""A client of Triton Inference Server over HTTP: the KServe protocol, streams, the repository.

`infer` is the protocol that all models speak, `stream` its extension for decoupled models
(`generate_stream`), `load` and `unload` are explicit model control.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from labkit.fleet.triton_server.server import ServerError

POLL_S = 0.01


@dataclass(frozen=True)
class Piece:
    """One response of a stream: tokens, and at the end the finish reason."""

    token_ids: list[int]
    finish_reason: str | None


class Client:
    """`async with Client(url) as client`. What the server refuses, and what is lost on its way, is
    raised as ServerError."""

    def __init__(self, url: str, timeout_s: float = 600.0):
        self.url, self.timeout = url, aiohttp.ClientTimeout(total=timeout_s)

    async def __aenter__(self) -> "Client":
        connector = aiohttp.TCPConnector(limit=0)
        self.session = aiohttp.ClientSession(connector=connector, timeout=self.timeout)
        return self

    async def __aexit__(self, *_) -> None:
        await self.session.close()

    async def infer(
        self,
        model: str,
        token_ids: Sequence[int],
        max_tokens: int,
        *,
        ignore_eos: bool = False,
        priority: int = 0,
        timeout_s: float = 0.0,
    ) -> Piece:
        """The whole answer of a model with dynamic batching.

        `priority` 1 is the most urgent, 0 the model's default. A request that is still in the
        queue after `timeout_s` is refused; one that runs by then is not stopped.
        """
        parameters = {"priority": priority} if priority else {}
        if timeout_s:
            parameters["timeout"] = round(timeout_s * 1_000_000)
        inputs = [
            tensor("token_ids", "INT32", [*token_ids]),
            tensor("max_tokens", "INT32", [max_tokens]),
            tensor("ignore_eos", "BOOL", [ignore_eos]),
        ]
        body = {"inputs": inputs, "parameters": parameters}
        answer = await self.post(f"models/{model}/infer", body)
        found = {one["name"]: one["data"] for one in answer["outputs"]}
        return Piece(found["output_ids"], found["finish_reason"][0])

    async def stream(
        self, model: str, token_ids: Sequence[int], max_tokens: int, *, ignore_eos: bool = False
    ) -> AsyncIterator[Piece]:
        """The answer of a decoupled model as it comes. ServerError may come after some pieces."""
        body = {"token_ids": [*token_ids], "max_tokens": max_tokens, "ignore_eos": ignore_eos}
        async with self.asked("POST", f"models/{model}/generate_stream", body) as response:
            async for line in response.content:
                if line.startswith(b"data:"):
                    yield piece_of(json.loads(line[5:]))

    async def load(self, model: str) -> None:
        """Loads a model of the repository; returns when it can be asked. One that is loaded, and
        whose files are as they were, stays as it is, even if its engine has died."""
        await self.post(f"repository/models/{model}/load")

    async def unload(self, model: str) -> None:
        """Has a model unloaded, when what is open has ended. Returns at once; see `gone`."""
        await self.post(f"repository/models/{model}/unload")

    async def gone(self, model: str) -> None:
        """Waits until an unload is done. TimeoutError after `timeout_s`."""
        async with asyncio.timeout(self.timeout.total):
            while (await self.states()).get(model) != "UNAVAILABLE":
                await asyncio.sleep(POLL_S)

    async def states(self) -> dict[str, str]:
        """READY, LOADING, UNLOADING or UNAVAILABLE, by model; "" for one never loaded."""
        found = await self.post("repository/index")
        return {one["name"]: one.get("state", "") for one in found}

    async def stats(self, model: str) -> dict:
        """What the server counted of a model: requests, calls of execute(), time in the queue."""
        async with self.asked("GET", f"models/{model}/stats") as response:
            return (await response.json())["model_stats"][0]

    async def post(self, path: str, body: dict | None = None):
        async with self.asked("POST", path, body or {}) as response:
            said = await response.read()
            return json.loads(said) if said else {}

    @asynccontextmanager
    async def asked(self, method: str, path: str, body: dict | None = None):
        """The response, for as long as it is read."""
        try:
            async with self.session.request(method, f"{self.url}/v2/{path}", json=body) as response:
                await refuse_failure(response)
                yield response
        except (aiohttp.ClientError, OSError, ValueError) as error:  # a timeout is an OSError
            told = str(error) or type(error).__name__
            raise ServerError(f"{path}: no whole answer: {told}") from None


def tensor(name: str, data_type: str, values: list) -> dict:
    """An input of one request; its first dimension is the batch's."""
    return {"name": name, "datatype": data_type, "shape": [1, len(values)], "data": values}


def piece_of(event: dict) -> Piece:
    """One event of a stream. ServerError for an error, which ends it."""
    if "error" in event:
        raise ServerError(str(event["error"]))
    tokens = event["output_ids"]  # the extension writes one element without its list
    return Piece(tokens if isinstance(tokens, list) else [tokens], event["finish_reason"] or None)


async def refuse_failure(response: aiohttp.ClientResponse) -> None:
    """ServerError with the status, and the reason that the server gives."""
    if response.status >= 400:
        said = await response.text()
        try:
            said = json.loads(said.removeprefix("data:"))["error"]  # a stream's errors are events
        except (ValueError, LookupError, TypeError):
            said = said[:500] or "no reason given"
        raise ServerError(f"HTTP {response.status}: {said}")
