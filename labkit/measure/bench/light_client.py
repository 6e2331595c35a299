"""A client that costs little: HTTP by hand over asyncio, for benchmarks on the server's machine."""

import asyncio
import re
import time
from collections.abc import Callable, Sequence

import msgspec

from labkit.measure.bench import sending
from labkit.measure.bench.answers import Answer, message_of
from labkit.measure.bench.drive import BenchError
from labkit.measure.workload import WorkloadRequest

Clock = Callable[[], float]
FINE = b"HTTP/1.1 200"


def clock_from_now() -> Clock:
    start = time.perf_counter()
    return lambda: time.perf_counter() - start


def post(one: WorkloadRequest, is_chat: bool = False) -> bytes:
    """A request as it goes over the wire: streamed, greedy."""
    body = sending.body(one, "", is_chat, salt="")
    del body["model"]  # a server has one
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    return request("POST", path, msgspec.json.encode(body))


def request(verb: str, path: str, body: bytes = b"") -> bytes:
    head = (
        f"{verb} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Stream(asyncio.Protocol):
    """One answer over a connection of its own. `over` is done when the connection is.

    Only lines that begin with "data:" are read: the head of the answer and the sizes of HTTP's
    chunks are none, and a server writes no event in two chunks.
    """

    def __init__(self, payload: bytes, answer: Answer, clock: Clock):
        self.payload, self.answer, self.clock = payload, answer, clock
        self.over = asyncio.get_running_loop().create_future()
        self.head, self.request_id = b"", None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport) -> None:
        self.transport, self.answer.sent = transport, self.clock()
        transport.write(self.payload)

    def data_received(self, data: bytes) -> None:
        if self.request_id is None:
            self.read_head(data)
        self.answer.feed(data, self.clock())

    def read_head(self, data: bytes) -> None:
        self.head += data
        found = re.search(rb"x-request-id: *([^\r\n]+)", self.head, re.IGNORECASE)
        if found:
            self.request_id = found[1].decode()

    def connection_lost(self, error) -> None:
        if self.head and not self.head.startswith(FINE):
            body = self.head.partition(b"\r\n\r\n")[2]
            self.answer.fail(self.head[:12].decode("ascii", "replace"), message_of(body))
        self.answer.close(self.clock())
        if not self.over.done():
            self.over.set_result(None)


async def start(port: int, payload: bytes, answer: Answer, clock: Clock) -> Stream:
    """Sends a request; its answer comes while others are awaited."""
    loop = asyncio.get_running_loop()
    _, stream = await loop.create_connection(
        lambda: Stream(payload, answer, clock), "127.0.0.1", port
    )
    return stream


async def get(port: int, path: str) -> bytes | None:
    """The body of a page; None unless its status is 200."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request("GET", path))
        head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
        return body if head.startswith(FINE) else None
    finally:
        writer.close()


def refuse_failures(answers: list[Answer]) -> None:
    """BenchError for the first answer that isn't whole."""
    for answer in answers:
        if answer.failure is not None:
            raise BenchError(
                f"an answer failed: {answer.failure}: {answer.message or 'no reason given'}"
            )


async def closed_loop(
    port: int, asked: Sequence[WorkloadRequest], concurrency: int, is_chat: bool = False
) -> tuple[list[Answer], float]:
    """All answers, and the CPU seconds that they took here. So many clients, each of which waits
    for its answer before it asks again. BenchError when one fails."""
    line = iter([(post(one, is_chat), Answer()) for one in asked])
    clock, answers, cpu = clock_from_now(), [], time.process_time()

    async def client() -> None:
        for payload, answer in line:  # shared: each takes the next one
            answer.arrival = clock()
            answers.append(answer)
            stream = await start(port, payload, answer, clock)
            await stream.over

    await asyncio.gather(*(client() for _ in range(concurrency)))
    refuse_failures(answers)
    return answers, time.process_time() - cpu
