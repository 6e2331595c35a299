"""The clients of `bench bottleneck`: a closed loop for a given time, watched from outside."""

import asyncio
import re
import time
from collections.abc import Callable, Sequence

import msgspec

from labkit.measure.bench import light_client
from labkit.measure.bench.answers import Answer
from labkit.measure.bench.bottleneck_rows import Seen
from labkit.measure.bench.light_client import Stream
from labkit.measure.bench.served import Served
from labkit.measure.workload import WorkloadRequest

LOOK_S = 0.2
AT_ONCE = 16  # questions about requests that have ended
KV_USE = re.compile(rb"^vllm:kv_cache_usage_perc\{.*\} (\S+)", re.MULTILINE)


async def fill(port: int, asked: Sequence[WorkloadRequest]) -> None:
    """Asks all, one after the other: the prefix cache holds them then."""
    clock, answers = light_client.clock_from_now(), [Answer() for _ in asked]
    for one, answer in zip(asked, answers, strict=True):
        stream = await light_client.start(port, light_client.post(one), answer, clock)
        await stream.over
    light_client.refuse_failures(answers)


async def play(
    server: Served, next_request: Callable[[int], WorkloadRequest], clients: int, seconds: float
) -> Seen:
    """So many clients for so long; what is open then is broken off, after a look at it."""
    before, cpu = await asyncio.to_thread(server.totals), time.process_time()
    clock, streams, kv = light_client.clock_from_now(), [], []
    tasks = [
        asyncio.create_task(client(number, server.port, next_request, clock, streams))
        for number in range(clients)
    ]
    looking = asyncio.create_task(look(server.port, kv))
    done, _ = await asyncio.wait({*tasks, looking}, timeout=seconds,
                                 return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
    for task in done:  # a client ends only when an answer failed
        task.result()
    cpu, end = time.process_time() - cpu, clock()
    after, looked = await asyncio.to_thread(server.totals), clock()  # a busy server answers late
    for task in (*tasks, looking):
        task.cancel()
    await asyncio.gather(*tasks, looking, return_exceptions=True)
    queues = await queues_of_open(server.port, lambda: clock() - end)
    for stream in streams:
        stream.transport.abort()
    queues += await queues_of_ended(server.port, streams)
    answers = [stream.answer for stream in streams]
    return Seen(end, looked, answers, queues, kv, before, after, cpu)


async def client(number: int, port: int, next_request, clock, streams: list[Stream]) -> None:
    """Asks, waits for the answer, asks again, without end. BenchError when an answer fails."""
    while True:
        payload, answer = light_client.post(next_request(number)), Answer()
        answer.arrival = clock()
        stream = await light_client.start(port, payload, answer, clock)
        streams.append(stream)
        await stream.over
        light_client.refuse_failures([answer])


async def look(port: int, kv: list[float]) -> None:
    """Notes the use of the KV cache, again and again."""
    while True:
        await asyncio.sleep(LOOK_S)
        page = await light_client.get(port, "/metrics")
        if page and (found := KV_USE.search(page)):
            kv.append(float(found[1]))


async def queues_of_open(port: int, since_end: Callable[[], float]) -> list[float]:
    """How long the open requests had waited for their first step when the run ended."""
    asked = since_end()
    page = await light_client.get(port, "/v1/requests")
    late = (asked + since_end()) / 2  # it was written some time between
    open_now = msgspec.json.decode(page)["data"] if page else []
    found = [min(one["queue_s"], one["age_s"] - late) for one in open_now]
    return [seconds for seconds in found if seconds > 0]


async def queues_of_ended(port: int, streams: Sequence[Stream]) -> list[float]:
    """Of those that the server remembers, the last that ended."""
    names = [one.request_id for one in streams if one.request_id and one.answer.done]
    found = []
    for begin in range(0, len(names), AT_ONCE):
        part = names[-256:][begin : begin + AT_ONCE]
        pages = await asyncio.gather(*(light_client.get(port, f"/v1/requests/{n}") for n in part))
        found += [msgspec.json.decode(page)["queue_s"] for page in pages if page]
    return found
