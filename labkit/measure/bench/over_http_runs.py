"""The three parts of `bench http`, each with the engine alone and with the server in turn."""

import asyncio
import random
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise

from labkit.measure import workload
from labkit.measure.bench import light_client, served
from labkit.measure.bench.answers import Answer, seconds_of
from labkit.measure.bench.drive import BenchError, Tell, drive, percentile, warm_up
from labkit.measure.bench.sending import WORDS
from labkit.measure.bench.served import Served
from labkit.measure.workload import WorkloadRequest
from labkit.model.loading import LoadedModel

TRIES = 3
SLOTS = ("--max-num-seqs", "1", "--max-queued-requests")


@dataclass
class Pair:
    """The same model twice: an engine in this process, and a server."""

    loaded: LoadedModel
    engine: object
    server: Served


def options_of(model: str, dtype: str) -> list[str]:
    told = ["--model", model, "--dtype", dtype, "--no-prefix-caching", "--log-format", "json"]
    return [*told, "--kv-memory", "1GB"]


@contextmanager
def both(model: str, dtype: str, max_num_seqs: int, tell: Tell) -> Iterator[Pair]:
    """An engine and a server, loaded and warm."""
    from labkit import rungs
    from labkit.model import loading

    told = [*options_of(model, dtype), "--max-num-seqs", str(max_num_seqs)]
    with served.serving(told, tell=tell) as server:
        tell("the engine alone is loaded")
        loaded = loading.load_decoder(model, dtype=dtype, device="cpu")
        engine = rungs.make(
            "preemptive", loaded, max_num_seqs=max_num_seqs, kv_memory="1GB", prefix_caching=False
        )
        one = WorkloadRequest("warm-up", 2, "Say hello.", ignore_eos=True)
        warm_up(engine, *workload.to_requests([one], loaded))
        asyncio.run(light_client.closed_loop(server.port, [one], 1, is_chat=True))
        yield Pair(loaded, engine, server)


def speed(pair: Pair, asked: Sequence[WorkloadRequest], runs: int, tell: Tell) -> list[dict]:
    """A row for each run of each: all of `asked` at once. BenchError where the two don't make
    the same number of tokens."""
    asked = [replace(one, arrival_s=0.0) for one in asked]
    is_chat = asked[0].prompt_token_ids is None
    rows = []
    for run in range(1, runs + 1):
        alone = drive(pair.engine, workload.to_requests(asked, pair.loaded), tell)
        tell(f"run {run}, over HTTP")
        cpu = pair.server.cpu_seconds()[0]
        answers, _ = asyncio.run(
            light_client.closed_loop(pair.server.port, asked, len(asked), is_chat=is_chat)
        )
        cpu = pair.server.cpu_seconds()[0] - cpu
        tokens = sum(answer.num_tokens for answer in answers)
        if tokens != alone.num_tokens:
            raise BenchError(
                f"the engine alone made {alone.num_tokens} tokens and the server {tokens} of the "
                "same requests, so their times can't be compared; give requests with ignore_eos"
            )
        seconds = seconds_of(answers)
        rows += [
            {"who": "engine alone", "run": run, "tokens": tokens, "seconds": alone.seconds,
             "tokens_per_s": alone.tokens_per_s},
            {"who": "HTTP", "run": run, "tokens": tokens, "seconds": seconds,
             "tokens_per_s": tokens / seconds, "api_cpu_per_token_s": cpu / tokens},
        ]  # fmt: skip
    return rows


def ttft(pair: Pair, count: int, seed: int, tell: Tell) -> dict:
    """First tokens of `count` short prompts, each asked of both in turn."""

    def of_engine(one: WorkloadRequest) -> float:
        return drive(pair.engine, workload.to_requests([one], pair.loaded)).latencies[one.id].ttft

    def of_server(one: WorkloadRequest) -> float:
        asking = light_client.closed_loop(pair.server.port, [one], 1, is_chat=True)
        return asyncio.run(asking)[0][0].latency.ttft

    draw, alone, over_http = random.Random(f"ttft {seed}"), [], []
    ways = [(of_engine, alone), (of_server, over_http)]
    for number in range(count):
        tell(f"{pair.loaded.name}: {number + 1} of {count}")
        text = " ".join(draw.choices(WORDS, k=32))
        one = WorkloadRequest(f"t{number}", 1, text, ignore_eos=True)
        for ttft_of, found in ways if number % 2 else ways[::-1]:
            found.append(ttft_of(one))
    return {
        "model": pair.loaded.name, "requests": count,
        **{f"alone_p{p}_s": percentile(alone, p) for p in (50, 99)},
        **{f"http_p{p}_s": percentile(over_http, p) for p in (50, 99)},
        "added_p50_s": percentile(over_http, 50) - percentile(alone, 50),
    }  # fmt: skip


def waiting(options: Namespace, tell: Tell) -> list[dict]:
    """A row for each run, without and with streams that wait, in turn."""
    told = [*options_of(options.model, options.dtype), *SLOTS, str(options.waiting + 1)]
    rows = []
    with served.serving(told, tell=tell) as server:
        asyncio.run(gaps_beside(server, 0, 8))  # what is prepared only once
        for run in range(1, options.runs + 1):
            for count in (0, options.waiting):
                tell(f"run {run}, {count} wait")
                gaps = in_time(server, count, options.output_tokens)
                rows.append({
                    "waiting": count, "run": run, "gaps": len(gaps),
                    "itl_p50_s": percentile(gaps, 50), "itl_p99_s": percentile(gaps, 99),
                })  # fmt: skip
    return rows


def in_time(server: Served, count: int, tokens: int) -> list[float]:
    """As `gaps_beside`; once more when other work of the machine made the others late."""
    for _ in range(TRIES - 1):
        with suppress(BenchError):
            return asyncio.run(gaps_beside(server, count, tokens))
    return asyncio.run(gaps_beside(server, count, tokens))


async def gaps_beside(server: Served, count: int, tokens: int) -> list[float]:
    """The gaps between the tokens of one stream in its second half, while `count` others wait.

    BenchError if they were not all there before that half, or not all waiting at the end.
    """
    clock = light_client.clock_from_now()
    words = " ".join(WORDS[:8])

    async def begin(name: str, length: int) -> light_client.Stream:
        one, answer = WorkloadRequest(name, length, words, ignore_eos=True), Answer()
        payload = light_client.post(one, is_chat=True)
        return await light_client.start(server.port, payload, answer, clock)

    stream = await begin("runs", tokens)
    times = stream.answer.chunk_times
    while not times and not stream.over.done():
        await asyncio.sleep(0.005)
    others = await asyncio.gather(*(begin("waits", 1) for _ in range(count)))
    while any(one.request_id is None and not one.over.done() for one in others):
        await asyncio.sleep(0.005)  # the head of an answer: it is in line
    there, half, begun = clock(), tokens // 2, len(times)
    await stream.over
    light_client.refuse_failures([stream.answer])
    still = sum(waited(one, times[-1]) for one in others)
    for one in others:
        one.transport.abort()
    if count and (begun > half or still < count):
        raise BenchError(
            f"of {count} streams {still} waited until the end, and all were there {there:.1f} s "
            f"after the start, with {begun} of {tokens} tokens made; give more --output-tokens, "
            "or fewer --waiting"
        )
    return [after - before for before, after in pairwise(times[half:])]


def waited(stream: light_client.Stream, until: float) -> bool:
    """Whether a stream had no token before `until`, and was not refused."""
    times = stream.answer.chunk_times
    return times[0] >= until if times else not stream.over.done()
