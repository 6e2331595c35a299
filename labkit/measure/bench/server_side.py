"""What a server says of a run itself: the growth of the totals on its /metrics. vLLM's names."""

import asyncio
import re

import aiohttp

HISTOGRAMS = {  # the first name that has grown
    "ttft": ("vllm:time_to_first_token_seconds",),
    "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "e2e": ("vllm:e2e_request_latency_seconds",),
    "queue": ("vllm:request_queue_time_seconds",),
}
COUNTERS = {
    "preemptions": "vllm:num_preemptions_total",
    "prompt_tokens": "vllm:prompt_tokens_total",
    "cached_tokens": "vllm:prefix_cache_hits_total",
    "tokens": "vllm:generation_tokens_total",
    "api_cpu_s": "process_cpu_seconds_total",  # of the process that speaks HTTP
    "engine_cpu_s": "labkit:engine_cpu_seconds_total",
}
LINE = re.compile(r"((?:vllm:|labkit:|process_)\w+_(?:sum|count|total))(?:\{.*\})? ([^ ]+)")
PATIENCE = 10  # looks, 0.2 s apart, until a server has counted its last request


def totals(text: str) -> dict[str, float]:
    """Sums, counts and totals of a page in Prometheus' text format, over all labels."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        if matched := LINE.match(line):
            name, value = matched.groups()
            found[name] = found.get(name, 0.0) + float(value)
    return found


def growth(before: dict[str, float], after: dict[str, float], name: str) -> float:
    """What was added since; below 0 when the server was started again. 0 for an unknown name."""
    return after.get(name, 0.0) - before.get(name, 0.0)


def difference(before: dict[str, float], after: dict[str, float]) -> dict[str, float | None]:
    """Means in seconds and counts of the time between two looks; None for what isn't told."""
    found = {"requests": growth(before, after, f"{HISTOGRAMS['e2e'][0]}_count")}
    for what, names in HISTOGRAMS.items():
        found[f"{what}_mean_s"] = None
        for name in names:
            count = growth(before, after, f"{name}_count")
            if count > 0:
                found[f"{what}_mean_s"] = growth(before, after, f"{name}_sum") / count
                break
    for what, name in COUNTERS.items():
        found[what] = growth(before, after, name) if name in after else None
    return found


async def look(session) -> dict[str, float] | None:
    """The totals now; None where there is no /metrics with any of them."""
    try:
        async with session.get("/metrics") as response:
            if response.status != 200:
                return None
            return totals((await response.read()).decode("utf-8", "replace")) or None
    except (aiohttp.ClientError, OSError):
        return None


async def since(session, before: dict[str, float] | None, num_whole: int) -> dict | None:
    """The difference to `before`, once `num_whole` more requests are counted or time is up."""
    if before is None:
        return None
    for _ in range(PATIENCE):
        await asyncio.sleep(0.2)  # an engine in another process tells its figures now and then
        after = await look(session)
        found = after and difference(before, after)
        if not found or found["requests"] >= num_whole:
            break
    return found
