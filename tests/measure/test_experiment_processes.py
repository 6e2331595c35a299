"""What notebook 07's experiments count, and that no server outlives its block. On paced devices."""

import os
import subprocess
import sys
import time

import psutil
import pytest

from labkit import paths
from labkit.engine.scheduler import Scheduler
from labkit.measure.bench import paced_devices
from labkit.measure.experiments import processes_bottlenecks as bottlenecks
from labkit.measure.experiments import processes_homes as homes
from labkit.measure.experiments import processes_life as life
from labkit.measure.experiments import processes_lost as lost
from labkit.measure.experiments.processes_http import Stream, get, is_alive, servers
from labkit.serving.engine_loop import EngineLoop
from labkit.serving.lifecycle import Registry

PACED = ["--device", "paced:H100", "--num-blocks", "256", "--log-format", "json"]
PATIENCE_S = 60


@pytest.fixture
def slow(tmp_path):
    """A card whose steps take 32 ms: answers last as long as a test needs them."""
    card = paced_devices.sized("A100:32b")
    return [*card.server_options("smollm2-135m", tmp_path), *PACED[2:]]


@pytest.mark.parametrize("state", lost.STATES)
def test_who_is_told_loses_nothing(state):
    loss = lost.lose(Scheduler, EngineLoop, state, tells_engine=True)
    assert (loss.blocks_held, loss.tokens_for_nobody, loss.blocks_after) == (0, 0, 0)


def test_who_is_not_told_computes_the_whole_answer():
    nobody = {
        state: lost.lose(Scheduler, EngineLoop, state, tells_engine=False).tokens_for_nobody
        for state in lost.STATES
    }
    assert nobody == {"waiting": 20, "running": 17, "preempted": 17}  # of 20, less 3 that were read
    running = lost.lose(Scheduler, EngineLoop, "running", tells_engine=False)
    assert running.blocks_held == 2  # 6 tokens in, 3 out, the last not computed: 8 in blocks of 4
    assert running.next_waits == 17 + 1


def test_14_two_clients_with_one_label():
    assert lost.by_label(Scheduler, EngineLoop) == lost.Mixed("", "ABABABAB")
    assert lost.by_request(Scheduler, EngineLoop, Registry) == lost.Mixed("AAAA", "BBBB")


def processes_of(running):
    return [
        process
        for one in running.values()
        for process in (psutil.Process(one.pid), *psutil.Process(one.pid).children(recursive=True))
    ]


def gone(processes) -> bool:
    last = time.monotonic() + PATIENCE_S
    while any(map(is_alive, processes)) and time.monotonic() < last:
        time.sleep(0.05)
    return not any(map(is_alive, processes))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_servers_end_with_their_block(error):
    with pytest.raises(error), servers({"a": ("process", PACED)}) as running:
        seen = processes_of(running)
        assert len(seen) == 2 and all(map(is_alive, seen))
        raise error
    assert gone(seen)


def test_servers_end_with_a_process_that_is_killed():
    """A kernel that is killed has no time to clean up."""
    source = (
        "import sys, time\n"
        "from labkit.measure.experiments.processes_http import servers\n"
        f"with servers({{'a': ('process', {PACED!r})}}) as running:\n"
        "    print(running['a'].pid, running['a'].engine_pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    kernel = subprocess.Popen(
        [sys.executable, "-c", source], stdout=subprocess.PIPE, text=True, cwd=paths.repo_root(),
        env={**os.environ, "PYTHONPATH": str(paths.repo_root())},
    )  # fmt: skip
    try:
        seen = [psutil.Process(int(pid)) for pid in kernel.stdout.readline().split()]
        assert len(seen) == 2
    finally:
        kernel.kill()
        kernel.wait()
    assert gone(seen)


def test_a_life_is_seen_and_a_death_is_told(slow):
    with servers({"a": ("process", slow)}) as running:
        server = running["a"]
        seen = life.two_clients(server)
        assert [len(moment.requests) for moment in seen.moments] == [0, 2, 1, 0]
        blocks = [moment.blocks_in_use for moment in seen.moments]
        assert blocks[0] == blocks[3] and blocks[1] > blocks[2] > blocks[0]
        assert {one["label"] for one in seen.moments[1].requests} == {"job-1"}
        assert len(set(seen.ids)) == 2
        death = life.kill_engine(server, streams=2)
        assert death.code == "engine_failed" and len(death.errors) == 2
        assert death.status == "restarting" and death.unhealthy < death.ready < death.answer
        assert get(server, "/health")[1]["engine_restarts"] == 1
        stream = Stream(server, "x", 3).rest()
        assert stream.is_done and stream.error is None


def test_a_full_line_is_busy_and_a_bad_request_is_bad(slow):
    cap = [*slow, "--max-num-seqs", "1", "--max-queued-requests", "1"]
    with servers({"a": ("process", cap)}) as running:
        server = running["a"]
        open_ones = [Stream(server, "x", 400).take(1), Stream(server, "y", 400)]
        assert Stream(server, "z", 400).status == 429
        assert Stream(server, "z", 10**6).status == 400
        for one in open_ones:
            one.leave()
        life.until(lambda: not get(server, "/v1/requests")[1]["data"])
        assert Stream(server, "z", 2).rest().is_done


def test_homes_are_measured_in_turn():
    with homes.paced_homes("H100:8b", slots=4) as running:
        rows = homes.measure(running, streams=2, tokens=8, label="x", rounds=1)
    assert [row["home"] for row in rows] == list(homes.HOMES)
    assert all(row["tokens"] == 16 for row in rows)
    assert homes.factor(rows, "thread", "thread") == 1.0
    assert len(homes.table(rows).splitlines()) == 4


def test_two_servers_at_once_and_then_the_third(slow):
    short, long = homes.compare_homes(slow, [(1, 6, 1), (2, 6, 2)], label="x")
    for rows, streams in ((short, 1), (long, 2)):
        assert [row["home"] for row in rows] == list(homes.HOMES)
        assert {row["batch"] for row in rows} == {streams}


def test_causes_that_need_the_same_server_share_it():
    rows = bottlenecks.compare_causes(
        clients=4, long_tokens=200, seconds=0.5, causes=("small-batch", "bandwidth")
    )
    assert [row["cause"] for row in rows] == ["baseline", "small-batch", "bandwidth"]
    base, small, _ = rows
    assert small["tokens_per_step"] <= 2 < base["tokens_per_step"]
    assert len(bottlenecks.table(rows).splitlines()) == 4
