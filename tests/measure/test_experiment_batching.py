"""What a static batch wastes is what really goes through a model; the sweep adds up."""

import pytest

from labkit.engine.request import Request
from labkit.engine.static import StaticEngine
from labkit.measure.batching import BatchRun, best_batch
from labkit.measure.bench.drive import drive
from labkit.measure.experiments import batching
from labkit.measure.generation import count_forwards
from labkit.measure.metrics import Latency
from labkit.model import load


def asked(*lengths):
    return [
        Request(f"r{i}", [1] * prompt, max_tokens=output, ignore_eos=True)
        for i, (prompt, output) in enumerate(lengths)
    ]


def test_slots_by_hand():
    """Widths 4, 4 (rows of 2 and 4 tokens, the second done after one step): 2+3, 4, 2+1, 4."""
    assert batching.slots_of(asked((2, 2), (4, 1)), 2) == batching.Slots(
        useful=2 + 4 + 3, padding=2 + 2, finished=5
    )


@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_slots_are_what_goes_through_the_model(batch_size):
    tiny = load("tiny")
    requests = batching.conversations(3, 7, prompt=(2, 12), output=(1, 6))
    requests = [Request(r.request_id, [t % 200 for t in r.prompt_token_ids], r.max_tokens, True)
                for r in requests]  # fmt: skip
    with count_forwards(tiny.model) as counted:
        drive(StaticEngine(tiny.model, tiny.eos_token_ids, batch_size), requests)
    assert counted.tokens == batching.slots_of(requests, batch_size).total


def test_a_batch_of_one_wastes_nothing():
    assert batching.slots_of(batching.conversations(), 1).wasted_share == 0


def test_conversations_are_the_same_for_a_seed_and_stay_in_range():
    first, again = batching.conversations(5), batching.conversations(5)
    assert [r.prompt_token_ids for r in first] == [r.prompt_token_ids for r in again]
    assert all(6 <= r.num_prompt_tokens <= 96 and 2 <= r.max_tokens <= 48 for r in first)
    assert len({r.max_tokens for r in first}) > 4


def test_sorting_by_length_wastes_less():
    requests = batching.conversations()
    unsorted, ordered = (
        batching.slots_of(line, 4).wasted_share for line in (requests, batching.by_length(requests))
    )
    assert ordered < unsorted


def test_a_sweep_has_a_point_and_a_run_for_each_size():
    tiny = load("tiny")
    requests = asked((2, 3), (4, 1), (3, 2))
    points, runs = batching.sweep(
        lambda size: StaticEngine(tiny.model, tiny.eos_token_ids, size), requests, [1, 2],
        memory_of=lambda engine: 10 * engine.batch_size,
    )  # fmt: skip
    assert [p.batch_size for p in points] == [r.batch_size for r in runs] == [1, 2]
    assert [p.memory_bytes for p in points] == [10, 20]
    assert all(len(run.latencies) == 3 for run in runs)
    for point, run in zip(points, runs, strict=True):
        assert point.tokens_per_s == pytest.approx(6 / run.seconds)
        assert point.ttft_s == max(one.ttft for one in run.latencies)  # 95% of three is all


def test_goodput_is_what_best_batch_compares():
    late, slow = Latency(2.0, (), 0.1, 3.0), Latency(0.5, (), 0.9, 3.0)
    fine, one_token = Latency(0.5, (), 0.1, 1.0), Latency(0.5, (), None, 0.5)
    runs = [BatchRun(1, 2.0, (late, slow, fine)), BatchRun(2, 4.0, (fine, one_token, fine))]
    assert [batching.goodput(run, 1.0, 0.5) for run in runs] == [0.5, 0.75]
    assert best_batch(runs, 1.0, 0.5) == 2
    assert [batching.goodput(run) for run in runs] == [1.5, 0.75]
    assert best_batch(runs) == 1
