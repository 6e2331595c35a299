"""What a model will need, told from its shape alone: near what its engine then measures."""

import pytest

from labkit.fleet.models.byte_counts import PACED_BYTES, PROCESS_BYTES, needed_by
from labkit.serving import engine_process, options

PER_TOKEN = 4 * 2 * 2 * 2 * 16  # float32, 2 layers, keys and values, 2 heads of 16


def need(*given: str):
    return needed_by(options.parse(["--model", "tiny", *given]))


def test_weights_cache_and_process_are_counted():
    small, large = need("--num-blocks", "10"), need("--num-blocks", "11")
    assert large.cache - small.cache == 16 * PER_TOKEN
    assert small.loaded > PROCESS_BYTES and small.total == small.loaded + small.cache
    half = need("--num-blocks", "10", "--dtype", "bfloat16")
    assert small.loaded - half.loaded == half.loaded - PROCESS_BYTES
    assert half.cache == small.cache  # a CPU computes attention in float32


def test_the_cache_is_what_the_server_makes_of_its_options():
    swap = 2**28
    assert need().cache == 2**30 + swap and need("--kv-memory", "2GB").cache == 2**31 + swap
    assert need("--preemption", "recompute").cache == 2**30
    assert need("--swap-memory", "1MB").cache == 2**30 + 2**20
    assert need("--rung", "continuous").cache == 2**30
    assert need("--rung", "static").cache == 0
    assert need("--rung", "cached", "--max-num-seqs", "3").cache == 3 * 512 * PER_TOKEN


def test_a_gpu_holds_weights_and_cache_and_a_paced_device_nothing():
    on_gpu = need("--device", "cuda", "--dtype", "bfloat16", "--num-blocks", "10")
    assert on_gpu.loaded < PROCESS_BYTES and on_gpu.cache == 10 * 16 * PER_TOKEN // 2
    assert need("--device", "paced:H100").total == PACED_BYTES


@pytest.mark.parametrize("rung", ["preemptive", "continuous", "paged", "cached"])
def test_what_the_engine_reserves_is_what_was_reckoned(rung):
    chosen = options.parse(["--model", "tiny", "--rung", rung])
    loop, ready = engine_process.load(options.engine_config(chosen))
    reserved = engine_process.unused_bytes(loop.engine.core, "cpu")
    assert reserved == pytest.approx(needed_by(chosen).cache, rel=0.01)
    assert ready.num_bytes > reserved
