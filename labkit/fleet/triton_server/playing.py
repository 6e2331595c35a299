"""One workload through Triton Inference Server and through labkit's own server: rows of figures.

Both get token ids at the same times, over HTTP on this machine, and both are asked by aiohttp.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from labkit.fleet.triton_server.client import Client
from labkit.fleet.triton_server.repository import Served
from labkit.fleet.triton_server.server import ServerError
from labkit.measure import workload
from labkit.measure.bench import sending
from labkit.measure.bench.answers import Answer, token_times
from labkit.measure.bench.drive import Tell, percentile
from labkit.measure.metrics import latency
from labkit.measure.workload import WorkloadRequest
from labkit.serving.text import TextSide


@dataclass
class Timed:
    """One request: when it was due, when each token was there; why it failed."""

    arrival: float
    token_times: list[float]
    failure: str = ""


def asked_of(
    model: str, num_requests: int, rate: float, seed: int, given: Sequence[WorkloadRequest] = ()
) -> list[WorkloadRequest]:
    """Requests of very different lengths as token ids, at random times (Poisson, `rate`/s).

    `given` takes the place of the built-in ones.
    """
    text = TextSide.load(model)
    asked = sending.repeated(list(given) or workload.synthetic(seed, num_requests), num_requests)
    asked = [
        one if one.prompt is None
        else replace(
            one, prompt=None,
            prompt_token_ids=text.encode_chat([{"role": "user", "content": one.prompt}]),
        )
        for one in asked
    ]  # fmt: skip
    return list(sending.scheduled(asked, sending.Load(rate=rate), 1.0, seed))


async def warm_up(client: Client, served: Served, first: WorkloadRequest) -> None:
    """Two tokens, and the server has counted them; much is prepared only once."""
    await ask(client, served, replace(first, max_tokens=2), Timed(0.0, []), 0.0)
    while (await client.stats(served.name))["inference_count"] == 0:
        await asyncio.sleep(0.01)  # a stream is counted a little after its end


async def play(
    client: Client, served: Served, asked: Sequence[WorkloadRequest], tell: Tell
) -> list[Timed]:
    """An open loop: a request is sent when it is due, whatever became of those before it."""
    start, timed, ended = time.perf_counter(), [], 0

    async def one(request: WorkloadRequest) -> Timed:
        nonlocal ended
        found = Timed(request.arrival_s, [])
        try:
            await ask(client, served, request, found, start)
        except ServerError as error:
            found.failure = str(error)
        ended += 1
        tell(f"{ended} of {len(asked)} answers")
        return found

    async with asyncio.TaskGroup() as group:
        for request in sorted(asked, key=lambda one: one.arrival_s):
            wait = request.arrival_s - (time.perf_counter() - start)
            await asyncio.sleep(max(wait, 0))
            timed.append(group.create_task(one(request)))
    return [task.result() for task in timed]


async def ask(
    client: Client, served: Served, request: WorkloadRequest, found: Timed, start: float
) -> None:
    """Sends one request, and notes when its tokens come. ServerError unless all have come."""
    finish_reason, what = None, (served.name, request.prompt_token_ids, request.max_tokens)
    if not served.streams:
        answer = await client.infer(*what, ignore_eos=request.ignore_eos)
        found.token_times += [time.perf_counter() - start] * len(answer.token_ids)
        finish_reason = answer.finish_reason
    else:
        async for piece in client.stream(*what, ignore_eos=request.ignore_eos):
            found.token_times += [time.perf_counter() - start] * len(piece.token_ids)
            finish_reason = piece.finish_reason
    if not finish_reason:
        raise ServerError("the answer ended without a finish reason")
    if not found.token_times:
        raise ServerError("the answer has no token")


def timed_of(answer: Answer) -> Timed:
    """An answer of labkit's server, as the load generator of `bench serve` has it."""
    if answer.failure:
        return Timed(answer.arrival, [], answer.failure)
    return Timed(answer.arrival, token_times(answer.seen_times, answer.num_tokens))


def row(who: dict, timed: Sequence[Timed]) -> dict:
    """The figures of one run: of its whole answers, percentiles by nearest rank."""
    whole = [one for one in timed if not one.failure]
    found = [latency(one.arrival, one.token_times) for one in whole]
    tokens = sum(len(one.token_times) for one in whole)
    figures = {**who, "requests": len(timed), "failed": len(timed) - len(whole), "tokens": tokens}
    if len(whole) < len(timed):
        figures["first_failure"] = next(one.failure for one in timed if one.failure)
    if whole:
        last = max(one.token_times[-1] for one in whole)
        figures["tokens_per_s"] = tokens / (last - min(one.arrival for one in timed))
    for name in ("ttft", "e2e"):
        values = [getattr(one, name) for one in found]
        figures |= {f"{name}_p{p}_s": percentile(values, p) for p in (50, 99)}
    gaps = [gap for one in found for gap in one.itl]
    return figures | {"itl_p50_s": percentile(gaps, 50), "itl_p99_s": percentile(gaps, 99)}


def batching_facts(before: dict, after: dict) -> dict:
    """What the server counted meanwhile: requests in a call of execute(), seconds in its queue."""
    requests = after["inference_count"] - before["inference_count"]
    calls = after["execution_count"] - before["execution_count"]
    queues = [one["inference_stats"]["queue"] for one in (before, after)]
    waited, count = (queues[1][name] - queues[0][name] for name in ("ns", "count"))
    return {
        "mean_batch": requests / calls if calls else None,
        "queue_mean_s": waited / 1e9 / count if count else None,
    }
