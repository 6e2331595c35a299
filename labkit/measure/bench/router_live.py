"""The parts of `bench router` that start servers: policies on two replicas, overhead, streams."""

import asyncio
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from labkit import machine
from labkit.fleet.router import route
from labkit.measure.bench import light_client, load, paced_devices, served
from labkit.measure.bench.answers import Answer
from labkit.measure.bench.drive import Tell, percentile
from labkit.measure.bench.router_workload import MAX_NUM_SEQS, Shape, asked
from labkit.measure.bench.served import Served
from labkit.measure.workload import WorkloadRequest

HITS, QUERIES = "vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total"
COLD = 5  # prompts that nobody has seen, to know what one costs
TIMEOUT_S = 600
STREAM_TOKENS = 48
PATIENT = ("--health-timeout", "30", "--first-byte-timeout", "600")  # the machine is kept busy


@contextmanager
def routing(servers: Sequence[Served], *options: str) -> Iterator[Served]:
    """A router in front of servers."""
    told = [*PATIENT, *options]
    for number, one in enumerate(servers):
        told += ["--backend", f"r{number}=http://127.0.0.1:{one.port}"]
    with served.serving(told, "none", route.__name__) as router:
        yield router


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Servers that start now compute with so many threads: they share the machine's cores."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(max(count, 1))
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


@contextmanager
def twins(shape: Shape, model: str, count: int, tell: Tell) -> Iterator[list[Served]]:
    """Replicas whose cache holds their share of the beginnings."""
    options = ["--model", model, "--max-num-seqs", str(MAX_NUM_SEQS), "--log-format", "json",
               "--num-blocks", str(shape.blocks(count))]  # fmt: skip
    with ExitStack() as stack, threads(int(machine.cores()) // count):
        tell("the replicas start")
        yield [stack.enter_context(served.serving(options)) for _ in range(count)]


def cold_seconds(server: Served, shape: Shape, seed: int) -> float:
    """The median TTFT of prompts that nobody has seen, one at a time."""
    alone = Shape(COLD, shape.prefix, shape.suffix, 1, COLD)
    requests = [
        WorkloadRequest(one.id, 1, prompt_token_ids=one.prompt_token_ids, ignore_eos=True)
        for turn in range(COLD) for one in asked(alone, 1.0, f"{seed} cold {turn}")[:1]
    ]  # fmt: skip
    answers, _ = asyncio.run(light_client.closed_loop(server.port, requests, 1))
    return median(answer.latency.ttft for answer in answers)


def policy_row(policy: str, servers, shape: Shape, rate: float, seed: int, tell: Tell) -> dict:
    """The workload through a router with this policy; nothing in the caches is of use to it."""
    before = [one.totals() for one in servers]
    with routing(servers, "--policy", policy, "--seed", str(seed)) as router:
        endpoint = load.Endpoint(policy, f"http://127.0.0.1:{router.port}")
        salt, requests = secrets.token_hex(8), asked(shape, rate, seed)
        asyncio.run(load.meet(endpoint, requests, False, salt + " trial"))
        outcome = asyncio.run(
            load.play(endpoint, requests, False, salt, None, TIMEOUT_S, tell)
        )
    after = [one.totals() for one in servers]

    def grown(name: str) -> float:
        return sum(b.get(name, 0.0) - a.get(name, 0.0) for a, b in zip(before, after, strict=True))

    ttft = [one.latency.ttft for one in outcome.answers if one.latency is not None]
    return {
        "where": f"live, {len(servers)}", "policy": policy, "requests": len(requests),
        "failed": len(requests) - len(ttft), "rate": rate, "hit_rate": grown(HITS) / grown(QUERIES),
        "ttft_p50_s": percentile(ttft, 50), "ttft_p99_s": percentile(ttft, 99),
    }  # fmt: skip


def overhead(count: int, tell: Tell) -> dict:
    """Streams of one token, in turn directly and through a router: what it adds to the TTFT."""
    told = ["--model", "tiny", "--log-format", "json"]
    with served.serving(told, tell=tell) as server, routing([server]) as router:
        tell(f"{count} requests each")
        return asyncio.run(in_turn(server.port, router.port, count))


async def in_turn(direct: int, routed: int, count: int) -> dict:
    found: dict[int, list[float]] = {direct: [], routed: []}
    for number in range(count):
        for port in (direct, routed) if number % 2 else (routed, direct):
            one = WorkloadRequest("x", 1, prompt_token_ids=(40, 41, 42), ignore_eos=True)
            answers, _ = await light_client.closed_loop(port, [one], 1)
            found[port].append(answers[0].latency.ttft)
    straight, through = found[direct], found[routed]
    return {
        "requests": count,
        **{f"direct_p{p}_s": percentile(straight, p) for p in (50, 99)},
        **{f"routed_p{p}_s": percentile(through, p) for p in (50, 99)},
        "added_p50_s": percentile(through, 50) - percentile(straight, 50),
    }


def streams(count: int, device: str, tell: Tell) -> list[dict]:
    """So many streams at once, directly and through a router, on a paced device."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="labkit-bench-")))
        told = paced_devices.sized(device).server_options("tiny", folder)
        told += ["--max-num-seqs", str(count), "--log-format", "json"]
        server = stack.enter_context(served.serving(told, tell=tell))
        router = stack.enter_context(routing([server]))
        return [
            stream_row(who, one, count, tell) for who, one in
            (("direct", server), ("router", router))
        ]  # fmt: skip


def stream_row(who: str, server: Served, count: int, tell: Tell) -> dict:
    tell(f"{count} streams, {who}")
    one = [WorkloadRequest(f"q{i}", STREAM_TOKENS, prompt_token_ids=(40, 41 + i % 200),
                           ignore_eos=True) for i in range(count)]  # fmt: skip
    before = server.cpu_seconds()[0]
    answers, _ = asyncio.run(light_client.closed_loop(server.port, one, count))
    cpu = server.cpu_seconds()[0] - before
    return {"where": who, "streams": count, **held(answers), "cpu_per_token_s": cpu / count
            / STREAM_TOKENS}  # fmt: skip


def held(answers: Sequence[Answer]) -> dict:
    """How many had begun and not ended at one time, and how evenly their tokens came."""
    gaps = [gap for one in answers for gap in one.latency.itl]
    last_begin = max(one.seen_times[0] for one in answers)
    return {
        "at_once": sum(one.end > last_begin for one in answers),
        "itl_p50_s": percentile(gaps, 50), "itl_p99_s": percentile(gaps, 99),
    }  # fmt: skip
