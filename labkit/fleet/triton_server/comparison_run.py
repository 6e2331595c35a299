"""The comparison of notebook 09 and `bench triton-server`: measured here, or as it was stored."""

import asyncio
import json
import math
import os
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from labkit import machine
from labkit.console import SetupError
from labkit.environment import again
from labkit.fleet.triton_server import install
from labkit.fleet.triton_server.repository import Served, write

FIGURES = Path(__file__).parents[2] / "measure" / "figures"
STORED = FIGURES / "triton-server-2026-11-30.json"
STORED_PACED = FIGURES / "triton-server-paced-2026-11-30.json"
SERVER, OWN = "Triton Inference Server", "labkit's own server"
WAYS = ("dynamic, whole", "dynamic, streamed", "continuous, streamed", OWN)


@dataclass(frozen=True)
class Plan:
    """What is measured; see `comparison`."""

    model: str = "smollm2-135m"
    device: str = "cpu"
    num_requests: int = 16
    rate: float = 1.5
    max_num_seqs: int = 8
    seed: int = 0
    only: Sequence[str] = WAYS
    loads: bool = True
    given: Sequence = ()

    def __post_init__(self):
        for way in self.only:
            if way not in WAYS:
                raise ValueError(f"way {way!r} is not known; there are {', '.join(WAYS)}")


def comparison(
    *, stored: bool | None = None, tell: Callable[[str], None] = lambda text: None, **plan
) -> dict:
    """One workload four ways, and two models loaded and unloaded.

    `rows`, one for each way (`only` some of them, by name): `tokens_per_s`, and `_p50_s` and
    `_p99_s` of `ttft`, `itl` and `e2e`.
      dynamic, whole        batches of whole requests; an answer comes when its batch has ended
      dynamic, streamed     the same batches, tokens as they are made
      continuous, streamed  labkit's continuous engine as a decoupled model
      labkit's own server   the same engine behind labkit's HTTP
    `models` (with `loads`, on a CPU), one for each keeper and model: `load_s`, `num_bytes`,
    `unload_s`, `freed_bytes`. Further: `date`, `machine`, `version` of the server, `workload`,
    `label` ("measured", or "modelled" on a paced card).

    `num_requests` of a built-in workload (or of `given`) come at `rate` a second at random times,
    inf all at once; up to `max_num_seqs` run together. `device` is "cpu", or a card with a size
    of model such as "A100:8b", paced: that needs no quiet machine. `tell` is told how far it is.

    `stored` None measures where the server is installed and else gives the stored result; True
    always gives that, False always measures. What is stored has a plan of its own, on a CPU or on
    a paced card as was asked for. `stored` of the result says which it is, `why` why nothing was
    measured, and `machine["load_before"]` how many other programs wanted a core then.

    Raises SetupError when it must be measured and can't be, ValueError for a plan that can't be
    run, ServerError with the server's words.
    """
    chosen, missing = Plan(**plan), install.why_not()
    if stored or (stored is None and missing):
        why = missing or "it was asked for"
        return {**read_stored(chosen.device), "stored": True, "why": why}
    if missing:
        raise SetupError(f"{SERVER} can't be measured", missing, again(install.COMMAND))
    return run(measure(chosen, tell)) | {"stored": False, "why": ""}


def run(work: Coroutine) -> dict:
    """The result of a coroutine, also in a notebook, whose own loop runs in this thread. An
    interrupt cancels it, so that what it started is ended."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    began: list = []

    async def supervised() -> dict:
        began.append((asyncio.get_running_loop(), asyncio.current_task()))
        return await work

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(asyncio.run, supervised())
        try:
            return result.result()
        except KeyboardInterrupt:
            for loop, task in began:
                loop.call_soon_threadsafe(task.cancel)
            raise


def read_stored(device: str = "cpu") -> dict:
    """The result of a run of `bench triton-server` on a CPU, or else on a paced card."""
    file = STORED if device == "cpu" else STORED_PACED
    return json.loads(file.read_text(encoding="utf-8"))


async def measure(plan: Plan, tell: Callable[[str], None]) -> dict:
    """Starts both servers, one after the other. Raises ServerError, BenchError."""
    from labkit.fleet.triton_server import playing
    from labkit.measure.bench import paced_devices
    from labkit.measure.bench.report import cpu_name

    device, busy = paced_devices.device(plan.device), load_average()
    asked = playing.asked_of(plan.model, plan.num_requests, plan.rate, plan.seed, plan.given)
    with tempfile.TemporaryDirectory(prefix="labkit-triton-server-") as folder:
        told = device.server_options(plan.model, Path(folder))
        engine = {"device": told[1], "model": told[3]}
        engine["dtype"] = "float32" if told[1] == "cpu" else "bfloat16"
        rows, models = await by_server(plan, engine, asked, Path(folder), tell)
        if OWN in plan.only:
            rows.append(await own_server(plan, engine, asked, tell))
    tokens = sum(one.max_tokens for one in asked)
    come = "all at once" if math.isinf(plan.rate) else f"at {plan.rate:g} a second (Poisson)"
    return {
        "date": date.today().isoformat(),
        "machine": {"cpu": cpu_name(), "cores": machine.cores(), "load_before": busy},
        "version": install.version(),
        "model": plan.model,
        "dtype": engine["dtype"],
        "device": device.about(),
        "label": device.label,
        "workload": f"{len(asked)} requests, {tokens} tokens out, {come}, seed {plan.seed}",
        "max_num_seqs": plan.max_num_seqs,
        "rows": rows,
        "models": models,
    }


def load_average() -> float | None:
    """How many programs wanted a core in the last minute; None where the system doesn't tell."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def ways(plan: Plan, engine: dict) -> dict[str, Served]:
    """Those of `plan` in which Triton Inference Server serves the model, by name."""
    some = {**engine, "max_num_seqs": plan.max_num_seqs}
    found = {
        "dynamic, whole": Served("dynamic_whole", "dynamic", streams=False, **some),
        "dynamic, streamed": Served("dynamic_streamed", "dynamic", **some),
        "continuous, streamed": Served("continuous", **some),
    }
    return {name: served for name, served in found.items() if name in plan.only}


async def by_server(
    plan: Plan, engine: dict, asked: Sequence, folder: Path, tell: Callable[[str], None]
) -> tuple[list[dict], list[dict]]:
    """Rows of the ways, and of the models that are loaded and unloaded."""
    from labkit.fleet.triton_server import loading, server
    from labkit.fleet.triton_server.client import Client

    loads, chosen = [], ways(plan, engine)
    if plan.loads and engine["device"] == "cpu":  # one model in two sizes
        loads = [Served("larger", model=engine["model"])]
        loads += [Served("smaller", model=engine["model"], dtype="int8")]
    rows, models = [], []
    if not chosen and not loads:
        return rows, models
    with server.running(write(folder / "models", [*chosen.values(), *loads])) as one:
        async with Client(one.url) as client:
            for way, served in chosen.items():
                rows.append(await one_way(one, client, way, served, asked, tell))
            if loads:
                tell("models are loaded and unloaded")
                models = await loading.by_server(one, client, loads)
    sizes = {served.name: row["num_bytes"] for served, row in zip(loads, models, strict=True)}
    return rows, models + (await loading.by_cache(loads, sizes) if loads else [])


async def one_way(
    one, client, way: str, served: Served, asked: Sequence, tell: Callable[[str], None]
) -> dict:
    """Loads a model, asks it for a short answer, puts the workload through it, unloads it."""
    from labkit.fleet.triton_server import loading, playing

    tell(f"{way}: the model is loaded")
    await client.load(served.name)
    await playing.warm_up(client, served, asked[0])
    before = await client.stats(served.name)
    timed = await playing.play(client, served, asked, lambda text: tell(f"{way}: {text}"))
    facts = playing.batching_facts(before, await client.stats(served.name))
    await client.unload(served.name)
    await loading.wait_until_gone(one, client, served.name, 0)
    found = playing.row({"server": SERVER, "batching": way}, timed)
    if not served.streams:  # its tokens have come at once: there are no gaps
        found |= {"itl_p50_s": None, "itl_p99_s": None}
    return found | (facts if served.is_dynamic else {})


async def own_server(
    plan: Plan, engine: dict, asked: Sequence, tell: Callable[[str], None]
) -> dict:
    """The same workload through labkit's own server, with the same engine."""
    from labkit.fleet.triton_server import playing
    from labkit.measure.bench import load, served

    options = ["--rung", "continuous", "--no-prefix-caching", "--kv-memory", "256MB"]
    options += ["--max-num-seqs", str(plan.max_num_seqs)]
    for name, value in engine.items():
        options += [f"--{name}", value]
    tell(f"{OWN} starts")
    with served.serving(options) as one:
        endpoint = load.Endpoint("labkit", f"http://127.0.0.1:{one.port}")
        await load.meet(endpoint, asked, False, "")
        outcome = await load.play(endpoint, asked, False, "", None, 600.0, tell)
    who = {"server": OWN, "batching": "continuous, streamed"}
    return playing.row(who, [playing.timed_of(answer) for answer in outcome.answers])
