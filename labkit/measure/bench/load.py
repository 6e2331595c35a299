"""The client of `bench serve`: sends requests when they are due, notes when answers come.

An open loop: a request is sent when it is due, whatever became of those before it. As little as
possible happens for a token, since client and server may share a machine.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import msgspec

from labkit.measure.bench import sending, server_side
from labkit.measure.bench.answers import Answer, message_of
from labkit.measure.bench.drive import BenchError, Tell, bar
from labkit.measure.bench.serve_rows import Outcome
from labkit.measure.workload import WorkloadRequest

KEEP_ALIVE_S = 2.0  # below the 5 s after which servers close an idle connection
SPARE_FILES = 64  # beside one for each connection


@dataclass
class Endpoint:
    """A server under a name. `refused` are the extra fields that it doesn't take."""

    name: str
    url: str
    key: str | None = field(default=None, repr=False)
    model: str = ""
    refused: list[str] = field(default_factory=list)

    @asynccontextmanager
    async def session(self, timeout_s: float):
        headers = {"Accept-Encoding": "identity"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S)
        limit = aiohttp.ClientTimeout(total=timeout_s)
        async with aiohttp.ClientSession(
            self.url, connector=connector, headers=headers, timeout=limit
        ) as session:
            yield session


async def ask(
    session: aiohttp.ClientSession, path: str, payload: bytes, answer: Answer,
    clock: Callable[[], float],
) -> None:  # fmt: skip
    """Sends one request and feeds what comes to `answer`. Raises nothing: a failure is noted."""
    answer.sent = clock()
    try:
        async with session.post(
            path, data=payload, headers={"Content-Type": "application/json"}
        ) as response:
            if response.status != 200:
                answer.fail(f"HTTP {response.status}", message_of(await response.read()))
            else:
                read = response.content.readany
                while data := await read():
                    answer.feed(data, clock())
        answer.close(clock())
    except TimeoutError:
        answer.fail("timeout", f"no end within {session.timeout.total:g} s (--timeout)")
    except aiohttp.ClientPayloadError as error:
        answer.fail("broken off", str(error))
    except aiohttp.ClientConnectorError as error:
        answer.fail("no connection", reason(error))
    except (aiohttp.ClientError, OSError) as error:
        answer.fail("no answer", str(error) or type(error).__name__)
    answer.end = clock()


async def play(
    endpoint: Endpoint, asked: Sequence[WorkloadRequest], is_chat: bool, salt: str,
    concurrency: int | None, timeout_s: float, tell: Tell,
) -> Outcome:  # fmt: skip
    """One run: all requests, at their arrivals or by so many clients one after another."""
    encode = msgspec.json.encode
    payloads = [
        encode(sending.body(one, endpoint.model, is_chat, salt, endpoint.refused)) for one in asked
    ]
    answers = [Answer(arrival=one.arrival_s) for one in asked]
    line = [*zip(payloads, answers, strict=True)]
    async with endpoint.session(timeout_s) as session:
        before = await server_side.look(session)
        ticker = asyncio.create_task(show(tell, asked, answers))
        cpu, start = time.process_time(), time.perf_counter()

        def clock() -> float:
            return time.perf_counter() - start

        await send(session, path_of(is_chat), line, concurrency, clock)
        cpu = time.process_time() - cpu
        ticker.cancel()
        num_whole = sum(answer.failure is None for answer in answers)
        return Outcome(asked, answers, cpu, await server_side.since(session, before, num_whole))


async def send(
    session, path: str, line: list[tuple[bytes, Answer]], concurrency: int | None,
    clock: Callable[[], float],
) -> None:  # fmt: skip
    async def client() -> None:
        for payload, answer in rest:
            answer.arrival = clock()
            await ask(session, path, payload, answer, clock)

    rest = iter(line)  # shared: each takes the next one
    async with asyncio.TaskGroup() as group:
        if concurrency is not None:
            for _ in range(min(concurrency, len(line))):
                group.create_task(client())
            return
        for payload, answer in rest:
            if (wait := answer.arrival - clock()) > 0:
                await asyncio.sleep(wait)
            group.create_task(ask(session, path, payload, answer, clock))


async def show(tell: Tell, asked: Sequence[WorkloadRequest], answers: Sequence[Answer]) -> None:
    """Tells twice a second how far it is."""
    total = sum(one.max_tokens for one in asked)
    while True:
        ended = [answer for answer in answers if answer.end == answer.end]
        failed = sum(answer.failure is not None for answer in ended)
        told = f", {len(ended)} of {len(answers)} ended" + (f", {failed} failed" if failed else "")
        tell(bar(sum(len(answer.chunk_times) for answer in answers), total) + told)
        await asyncio.sleep(0.5)


def reason(error: Exception) -> str:
    """What the system says of a failed connection, without aiohttp's words around it."""
    cause = getattr(error, "os_error", error)
    number = getattr(cause, "errno", None) or 0
    return os.strerror(number) if number > 0 else str(cause) or type(cause).__name__


def path_of(is_chat: bool) -> str:
    return "/v1/chat/completions" if is_chat else "/v1/completions"


async def meet(endpoint: Endpoint, asked: Sequence[WorkloadRequest], is_chat: bool, salt: str):
    """Asks an endpoint for its model and for two tokens, and finds out which fields it refuses.

    Raises BenchError that names the URL and the remedy.
    """
    try:
        async with endpoint.session(timeout_s=120) as session:
            await choose_model(session, endpoint)
            await find_refused(session, endpoint, asked, is_chat, salt)
    except TimeoutError:
        raise BenchError(f"{endpoint.url} gives no answer within 120 s; look at its log") from None
    except (aiohttp.ClientError, OSError) as error:
        raise BenchError(
            f"{endpoint.url} can't be reached ({reason(error)}); start a server there "
            "(python3 -m labkit serve), or name another with --url"
        ) from None


async def choose_model(session, endpoint: Endpoint) -> None:
    """The first of /v1/models, unless one is given."""
    async with session.get("/v1/models") as response:
        body = await response.read()
        if response.status == 401:
            raise BenchError(f"{endpoint.url} wants a key; give --api-key, or set LABKIT_API_KEY")
        if endpoint.model:
            return
        if response.status != 200:
            raise BenchError(
                f"{endpoint.url}/v1/models gives {response.status} ({message_of(body)}); "
                "wait until the server is ready, or name the model with --model"
            )
    try:
        endpoint.model = msgspec.json.decode(body)["data"][0]["id"]
    except (msgspec.DecodeError, LookupError, TypeError):
        raise BenchError(
            f"{endpoint.url}/v1/models lists no model; name it with --model, or mend --url"
        ) from None


async def find_refused(
    session, endpoint: Endpoint, asked: Sequence[WorkloadRequest], is_chat: bool, salt: str
) -> None:
    """Tries the extra fields of `asked`, one by one only if they are refused together."""

    async def trial(refused: Sequence[str]) -> Answer:
        answer = Answer()
        fields = sending.body(sample, endpoint.model, is_chat, salt, refused)
        await ask(session, path_of(is_chat), msgspec.json.encode(fields), answer, time.perf_counter)
        return answer

    sample = sample_of(asked)
    answer, extras = await trial(()), [*sending.extras_of(sample, salt)]
    if (answer.failure or "") not in ("HTTP 400", "HTTP 422"):
        check_trial(endpoint, answer)
        return
    check_trial(endpoint, await trial(extras))
    for name in extras:
        alone = await trial([other for other in extras if other != name])
        if alone.failure in ("HTTP 400", "HTTP 422"):
            endpoint.refused.append(name)


def sample_of(asked: Sequence[WorkloadRequest]) -> WorkloadRequest:
    """A short request with each field that any of `asked` has."""
    has_ids = any(one.prompt_token_ids is not None for one in asked)
    return WorkloadRequest(
        "trial", max_tokens=2,
        prompt=None if has_ids else "Say hello.",
        prompt_token_ids=[40, 41, 42, 43] if has_ids else None,
        ignore_eos=any(one.ignore_eos for one in asked),
        priority=max((one.priority for one in asked), key=abs),
        tenant=next((one.tenant for one in asked if one.tenant), ""),
        deadline_ms=600_000 if any(one.deadline_ms for one in asked) else None,
    )  # fmt: skip


def check_trial(endpoint: Endpoint, answer: Answer) -> None:
    if answer.failure is not None:
        raise BenchError(
            f"{endpoint.url} doesn't answer a short request to {endpoint.model!r}: "
            f"{answer.failure}: {answer.message or 'no reason given'}; see its log, and --model, "
            "--endpoint, --api-key"
        )


def raise_file_limit(num_connections: int) -> str | None:
    """Allows this process as many open files as it may have; what to do when that's too few."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return None
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = num_connections + SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return None
    most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most >= needed:
        return None
    return (
        f"{num_connections} requests may be under way at once, and this process may open {most} "
        f"files: raise the limit (ulimit -Hn {needed}), or ask for fewer --requests"
    )
