"""A real Triton Inference Server, where one is installed, over models that compute nothing.

Their engines are real processes on a paced device: an answer takes its time and no CPU.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from labkit.fleet import triton_server
from labkit.fleet.triton_server import install, loading, playing, server
from labkit.fleet.triton_server.client import Client
from labkit.fleet.triton_server.model_config import QueuePolicy
from labkit.fleet.triton_server.repository import Served, write
from labkit.measure.workload import WorkloadRequest

pytestmark = pytest.mark.skipif(bool(install.why_not()), reason=install.why_not() or "installed")

SHAPE = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "eos_token_id": 2, "hidden_act": "silu",
    "tie_word_embeddings": False,
}  # fmt: skip
PROMPT = [40, 41, 42]
LONG = 150  # tokens: more than a second


def models(folder: Path) -> list[Served]:
    (folder / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
    paced = {"model": str(folder), "device": "paced:A100", "dtype": "bfloat16"}
    cap = QueuePolicy(max_queue_size=2, timeout_s=60)
    return [
        Served("whole", "dynamic", streams=False, max_num_seqs=2, queue=cap, **paced),
        Served("streamed", "dynamic", max_num_seqs=2, **paced),
        Served("continuous", max_num_seqs=2, **paced),
        Served("alone", max_num_seqs=1, **paced),
        Served("broken", model="/nowhere/at-all"),
    ]


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shape")
    repository = write(tmp_path_factory.mktemp("models"), models(folder))
    with server.running(repository) as one:
        for name in ("whole", "streamed", "continuous", "alone"):
            one.post(f"repository/models/{name}/load")
        yield one


def asking(running, work):
    """Runs `work(client)` in an event loop, with a client."""

    async def inside():
        async with Client(running.url) as client:
            return await work(client)

    return asyncio.run(inside())


def engines(running) -> list[psutil.Process]:
    family = psutil.Process(running.pid).children(recursive=True)
    return [one for one in family if "engine_process" in " ".join(one.cmdline())]


async def again(client, name):
    await client.unload(name)
    await client.gone(name)
    await client.load(name)


async def pieces(client, name, max_tokens):
    return [one async for one in client.stream(name, PROMPT, max_tokens, ignore_eos=True)]


async def answer(client, max_tokens=LONG, after=0.0, **options):
    """When an answer of "whole" was there, or why none came."""
    await asyncio.sleep(after)
    try:
        await client.infer("whole", PROMPT, max_tokens, ignore_eos=True, **options)
        return time.monotonic()
    except server.ServerError as error:
        return str(error)


def test_the_server_reads_our_configuration_as_it_was_meant(running):
    batching = running.get("models/whole/config")["dynamic_batching"]
    assert batching["preferred_batch_size"] == [2]
    assert int(batching["max_queue_delay_microseconds"]) == 20_000
    assert int(batching["priority_levels"]) == 2
    assert batching["default_queue_policy"]["max_queue_size"] == 2
    assert running.get("models/continuous/config")["model_transaction_policy"]["decoupled"]


@pytest.mark.parametrize("name", ["streamed", "continuous"])
def test_a_decoupled_model_streams_token_by_token(running, name):
    found = asking(running, lambda client: pieces(client, name, 5))
    assert [len(one.token_ids) for one in found] == [1] * 5
    assert [one.finish_reason for one in found] == [None] * 4 + ["length"]


def test_prompts_of_different_lengths_share_a_batch(running):
    async def work(client):
        before = await client.stats("whole")
        prompts = [PROMPT, PROMPT * 20]
        asked = (client.infer("whole", one, 3, ignore_eos=True) for one in prompts)
        found = await asyncio.gather(*asked)
        return found, playing.batching_facts(before, await client.stats("whole"))

    found, facts = asking(running, work)
    assert [len(one.token_ids) for one in found] == [3, 3]
    assert facts["mean_batch"] == 2


def test_a_short_answer_is_held_by_its_batch_and_not_by_the_engine(running):
    async def both(client, name):
        async def one(length):
            found = await pieces(client, name, length)
            return time.monotonic(), found

        begun = asyncio.create_task(one(LONG))
        await asyncio.sleep(0.1)
        short = await one(3)
        return short[0] < (await begun)[0]

    assert asking(running, lambda client: both(client, "continuous"))
    assert not asking(running, lambda client: both(client, "streamed"))


def test_the_queue_has_its_cap_and_one_more_is_told_at_once(running):
    """Case 33: the cap counts those who wait, however their arrivals are spaced."""

    async def work(client):
        began = time.monotonic()
        found = await asyncio.gather(*(answer(client, after=0.1 * i) for i in range(6)))
        return [one if isinstance(one, str) else one - began for one in found]

    found = asking(running, work)
    refused = [one for one in found if isinstance(one, str)]
    assert len(refused) == 3 and all("Exceeds maximum queue size" in one for one in refused)
    assert not any(isinstance(one, str) for one in found[:3])


def test_an_urgent_request_overtakes_those_that_wait(running):
    async def work(client):
        return await asyncio.gather(
            answer(client), answer(client), answer(client, after=0.2, priority=2),
            answer(client, after=0.3, priority=1), answer(client, after=0.3, priority=1),
        )  # fmt: skip

    first, second, usual, *urgent = asking(running, work)
    assert max(first, second) < min(urgent) and max(urgent) < usual


def test_a_timeout_in_the_queue_is_told_only_when_the_batcher_looks(running):
    """Case 33 again: it looks when the model is free, which is long after 50 ms."""

    async def work(client):
        long = asyncio.gather(answer(client), answer(client))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        told = await answer(client, 3, timeout_s=0.05)
        waited = time.monotonic() - began
        await long
        return told, waited

    told, waited = asking(running, work)
    assert "timeout" in told.lower() and "503" in told
    assert waited > 0.3


def test_one_bad_request_is_refused_alone_with_its_reason(running):
    async def work(client):
        with pytest.raises(server.ServerError, match="HTTP 400.*max_model_len is 2048"):
            await pieces(client, "continuous", 8000)
        return await pieces(client, "continuous", 2)

    assert len(asking(running, work)) == 2


def test_a_client_that_leaves_frees_the_engine(running):
    """Case 17, with room for one."""

    async def work(client):
        stream = client.stream("alone", PROMPT, 1500, ignore_eos=True)
        await anext(stream)
        await stream.aclose()
        return await asyncio.wait_for(pieces(client, "alone", 2), 8)

    assert len(asking(running, work)) == 2


def test_a_model_that_cannot_be_loaded_says_why_and_disturbs_nobody(running):
    async def work(client):
        with pytest.raises(server.ServerError, match="there is no model '/nowhere/at-all'"):
            await client.load("broken")
        return await client.states(), await pieces(client, "continuous", 2)

    states, found = asking(running, work)
    assert states["broken"] == "UNAVAILABLE" and len(found) == 2


def test_models_come_and_go_by_the_api_and_their_processes_with_them(running):
    before = len(engines(running))

    async def work(client):
        await client.unload("continuous")
        await client.gone("continuous")
        gone = len(engines(running))
        with pytest.raises(server.ServerError, match="no available versions"):
            await pieces(client, "continuous", 2)
        await client.load("continuous")
        return gone, await pieces(client, "continuous", 2)

    gone, found = asking(running, work)
    assert gone == before - 1 and len(found) == 2 and len(engines(running)) == before


def test_an_unload_waits_for_what_is_open(running):
    async def work(client):
        stream = client.stream("alone", PROMPT, 40, ignore_eos=True)
        await anext(stream)
        await client.unload("alone")
        rest = [one async for one in stream]
        await client.gone("alone")
        await client.load("alone")
        return rest

    assert len(asking(running, work)) == 39


def test_a_killed_engine_ends_its_streams_with_an_error_and_can_be_loaded_again(running):
    async def work(client):
        await again(client, "alone")  # so that its engine is the youngest
        engine = max(engines(running), key=lambda one: one.create_time())
        stream = client.stream("alone", PROMPT, 1500, ignore_eos=True)
        await anext(stream)
        engine.kill()
        with pytest.raises(server.ServerError, match="unload the model and load it again"):
            async for _ in stream:
                pass
        others = await pieces(client, "continuous", 2)
        await client.load("alone")  # does nothing: to the server the model is loaded
        with pytest.raises(server.ServerError, match="unload the model"):
            await pieces(client, "alone", 2)
        await again(client, "alone")
        return others, await pieces(client, "alone", 2)

    others, found = asking(running, work)
    assert len(others) == len(found) == 2


def test_a_workload_gives_the_figures_of_the_comparison(running):
    asked = [
        WorkloadRequest(f"r{i}", 4 + i, prompt_token_ids=PROMPT, ignore_eos=True) for i in range(4)
    ]

    async def work(client):
        said = []
        timed = await playing.play(client, Served("continuous"), asked, said.append)
        return playing.row({"server": "x"}, timed), said

    row, said = asking(running, work)
    assert (row["requests"], row["failed"], row["tokens"]) == (4, 0, 22)
    assert 0 < row["ttft_p50_s"] < row["e2e_p50_s"] <= row["e2e_p99_s"]
    assert said[-1] == "4 of 4 answers"


def test_loading_is_measured_beside_the_cache(running, tmp_path):
    two = [one for one in models(tmp_path) if one.name in ("continuous", "alone")]

    async def work(client):
        for one in two:
            await client.unload(one.name)
            await client.gone(one.name)
        rows = await loading.by_server(running, client, two)
        sizes = {one.name: row["num_bytes"] for one, row in zip(two, rows, strict=True)}
        rows += await loading.by_cache(two, sizes)
        for one in two:
            await client.load(one.name)
        return rows

    rows = asking(running, work)
    assert len(rows) == 4
    assert all(row["num_bytes"] > 1e6 and row["load_s"] > 0 for row in rows)
    assert all(row["freed_bytes"] > 0.5 * row["num_bytes"] for row in rows)


def test_the_comparison_runs_from_end_to_end():
    found = triton_server.comparison(
        model="tiny", device="A100:8b", num_requests=4, rate=8.0, stored=False
    )
    assert [row["failed"] for row in found["rows"]] == [0, 0, 0, 0]
    assert found["label"] == "modelled" and found["models"] == []
    assert found["version"] == install.version() and not found["stored"]


def test_nothing_is_left_when_the_block_ends(tmp_path):
    with server.running(write(tmp_path / "m", models(tmp_path)[2:3])) as one:
        one.post("repository/models/continuous/load")
        family = psutil.Process(one.pid).children(recursive=True)
        assert family
    assert one.process.poll() is not None
    assert psutil.wait_procs(family, 5)[1] == []
    assert not [*server.SHARED_MEMORY.glob(f"{one.prefix}*")]


def test_nothing_is_left_when_the_server_is_killed(tmp_path):
    with server.running(write(tmp_path / "m", models(tmp_path)[2:3])) as one:
        one.post("repository/models/continuous/load")
        family = psutil.Process(one.pid).children(recursive=True)
        one.process.kill()
        one.process.wait()
    assert psutil.wait_procs(family, 5)[1] == []
    assert not [*server.SHARED_MEMORY.glob(f"{one.prefix}*")]


STARTER = """
import sys, time
from pathlib import Path
from labkit.fleet.triton_server import server
with server.running(Path(sys.argv[1])) as one:
    one.post("repository/models/continuous/load")
    print(one.pid, flush=True)
    time.sleep(600)
"""


def test_nothing_is_left_when_who_started_it_is_killed(tmp_path):
    repository = write(tmp_path / "m", models(tmp_path)[2:3])
    command = [sys.executable, "-c", STARTER, str(repository)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as starter:
        pid = int(starter.stdout.readline())
        one = psutil.Process(pid)
        family = [one, *one.children(recursive=True)]
        os.kill(starter.pid, signal.SIGKILL)
        starter.wait()
        left = psutil.wait_procs(family, 20)[1]
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        assert not left
