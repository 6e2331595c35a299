"""`bench decode` on `tiny`, and its arithmetic by hand."""

import json

import pytest
import torch

from labkit import machine
from labkit.measure.bench import cli, decode, decode_cost, decode_profile, roofs
from labkit.model.checkpoint import ModelError
from labkit.model.linear import Int8Linear
from labkit.model.loading import load_decoder

LAYER = 64 * (64 + 2 * 32) + 64 * 64 + 64 * 256 + 128 * 64  # qkv, o, gate_up, down of tiny
WEIGHTS = 2 * LAYER + 64 * 259
KV_NUMBERS = 2 * 2 * 2 * 16  # of a token: layers, keys and values, KV heads, head_dim


@pytest.fixture(scope="module")
def tiny():
    return load_decoder("tiny").model


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Small reads, few steps: the figures mean nothing, their relations do."""
    monkeypatch.setattr(roofs, "READ_BYTES", 2**22)
    monkeypatch.setattr(roofs, "SIZE", 64)
    monkeypatch.setattr(decode, "LEAST_SECONDS", 0.0)


def measured(tmp_path, *line):
    file = tmp_path / "d.json"
    assert cli.main(["decode", "--model", "tiny", "--json", str(file), *line]) == 0
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_floor_and_fraction_follow_from_the_row(tmp_path, dtype):
    try:
        if dtype == "int8":
            Int8Linear(torch.ones(4, 4))
    except ModelError:
        pytest.skip("this torch has no integer products of oneDNN, which int8 needs")
    done = measured(tmp_path, "--dtype", dtype, "--batch", "1,3", "--context", "16,40")
    cells = [(row["batch"], row["context"]) for row in done["rows"]]
    assert cells == [(1, 16), (3, 16), (1, 40), (3, 40)]
    for row in done["rows"]:
        floor = max(row["bytes"] / done["bandwidth"], row["flops"] / done["peak"])
        assert row["floor_s"] == pytest.approx(floor)
        assert row["fraction"] == pytest.approx(floor / row["step_s"])
        assert row["tokens_per_s"] == pytest.approx(row["batch"] / row["step_s"])


def test_bytes_and_flops_by_hand(tiny):
    config = tiny.config
    assert decode_cost.weight_bytes(config, "float32") == 4 * WEIGHTS
    outputs = 2 * (64 + 64 + 64 + 256 + 64) + 259
    assert decode_cost.weight_bytes(config, "int8") == WEIGHTS + 4 * outputs
    expected = 2 * WEIGHTS + 3 * 64 * 2 + 3 * 40 * KV_NUMBERS * 4
    assert decode_cost.step_bytes(config, "bfloat16", 3, 40, kv_number_bytes=4) == expected
    assert decode_cost.step_flops(config, 3, 40) == 3 * (2 * WEIGHTS + 4 * 2 * 64 * 40)


def numbers(product) -> int:
    """Of the weight, in panels (which are filled up with zeros) or not."""
    weight = product.weight
    return weight.numel() if torch.is_tensor(weight) else weight.inputs * weight.outputs


def test_weights_counted_are_weights_held(tiny):
    layer = tiny.layers[0]
    held = sum(numbers(p) for p in (layer.qkv, layer.o, layer.gate_up, layer.down))
    assert held == LAYER
    assert 2 * held + numbers(tiny.head) == WEIGHTS


def test_blocks_are_distinct_in_disorder_and_full_of_numbers(tiny):
    batch, cache = decode.prepared(tiny, batch=8, context=40, seed=0)
    blocks = batch.block_tables.flatten().tolist()
    assert sorted(blocks) == list(range(24)) != blocks
    assert (batch.query_lens, batch.context_lens) == ([1] * 8, [40] * 8)
    assert all(layer.std() > 0.5 for layer in cache.layers)
    again, _ = decode.prepared(tiny, batch=8, context=40, seed=0)
    assert again.block_tables.flatten().tolist() == blocks


def test_a_cell_that_does_not_fit_is_skipped_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "memory", lambda: (2**20, 2**20))
    done = measured(tmp_path, "--batch", "1,64", "--context", "64")
    assert [row["batch"] for row in done["rows"]] == [1]
    assert any("batch 64, context 64 is skipped" in note for note in done["notes"])


def test_a_context_beyond_the_model_is_refused_with_its_limit(capsys):
    assert cli.main(["decode", "--model", "tiny", "--context", "64,513"]) == 1
    told = capsys.readouterr().err.splitlines()[-1]
    assert "context 513" in told and "512" in told and "--context" in told


def test_the_profile_adds_up_to_the_step(tmp_path):
    done = measured(tmp_path, "--batch", "1", "--context", "16", "--profile")
    assert [row["part"] for row in done["profile"]] == list(decode_profile.PARTS)
    assert sum(row["share"] for row in done["profile"]) == pytest.approx(1)
    assert all(row["seconds"] > 0 for row in done["profile"])


def test_profiling_changes_no_result_and_leaves_nothing_behind(tiny):
    batch, cache = decode.prepared(tiny, batch=2, context=20, seed=1)
    before = tiny(batch, cache)
    with decode_profile.parts_timed(tiny) as seconds:
        assert torch.equal(tiny(batch, cache), before)
    assert all(seconds[part] > 0 for part in decode_profile.PARTS if part != "rest")
    noted = dict(seconds)
    assert torch.equal(tiny(batch, cache), before)
    assert seconds == noted


def test_the_best_run_counts(monkeypatch):
    ticks = iter([0.0, 3.0, 10.0, 11.0, 20.0, 25.0])
    monkeypatch.setattr(roofs.time, "perf_counter", lambda: next(ticks))
    assert roofs.best_of(lambda: None, runs=3) == 1.0
