"""The least time of a step, what a forward pass costs, and the two measured roofs."""

from types import SimpleNamespace

import pytest

from labkit.measure import roofline

SMOLLM2 = SimpleNamespace(
    hidden_size=576,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    head_dim=64,
    intermediate_size=1536,
    vocab_size=49152,
)
NUM_WEIGHTS = 30 * (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536) + 576 * 49152


@pytest.mark.parametrize(
    ("num_flops", "num_bytes", "expected"),
    [
        (200.0, 10.0, (2.0, "compute")),
        (100.0, 30.0, (3.0, "memory")),
        (100.0, 10.0, (1.0, "memory")),  # equal: memory
        (0.0, 10.0, (1.0, "memory")),
        (100.0, 0.0, (1.0, "compute")),
    ],
)
def test_the_slower_of_computing_and_moving_decides(num_flops, num_bytes, expected):
    assert roofline.step_time(num_flops, num_bytes, peak_flops=100, bandwidth=10) == expected


def test_a_step_changes_from_memory_to_compute_at_the_ridge():
    machine = roofline.Machine(peak_flops=300e9, bandwidth=30e9)
    assert machine.ridge == 10.0
    below, above = roofline.Cost(9.9, 1), roofline.Cost(10.1, 1)
    bounds = [
        roofline.step_time(cost.num_flops, cost.num_bytes, machine.peak_flops, machine.bandwidth)[1]
        for cost in (below, above)
    ]
    assert bounds == ["memory", "compute"]
    assert below.intensity == 9.9


def test_a_decode_step_reads_every_weight_once_and_uses_it_once():
    cost = roofline.forward_cost(SMOLLM2, num_new=1)
    kv_bytes = 30 * 2 * 192 * 4
    assert cost.num_bytes == 4 * NUM_WEIGHTS + kv_bytes
    assert cost.num_flops == 2 * NUM_WEIGHTS + 30 * 4 * 576  # it attends to itself


def test_the_cache_adds_its_bytes_and_its_attention():
    short, long = (roofline.forward_cost(SMOLLM2, 1, num_cached=n) for n in (0, 1000))
    assert long.num_bytes - short.num_bytes == 1000 * 30 * 2 * 192 * 4
    assert long.num_flops - short.num_flops == 1000 * 30 * 4 * 576


def test_a_prompt_in_one_pass_computes_what_token_by_token_with_a_cache_computes():
    whole = roofline.forward_cost(SMOLLM2, num_new=12)
    steps = [roofline.forward_cost(SMOLLM2, 1, num_cached=n) for n in range(12)]
    assert whole.num_flops == sum(step.num_flops for step in steps)
    assert whole.num_bytes < steps[0].num_bytes * 12  # but reads the weights once


def test_half_the_bytes_in_bfloat16():
    full = roofline.forward_cost(SMOLLM2, 1, 100)
    half = roofline.forward_cost(SMOLLM2, 1, 100, bytes_per_number=2)
    assert half.num_bytes * 2 == full.num_bytes
    assert half.num_flops == full.num_flops


def test_a_config_without_head_dim_divides_the_hidden_size():
    older = SimpleNamespace(**{**vars(SMOLLM2), "head_dim": None})
    assert roofline.forward_cost(older, 7) == roofline.forward_cost(SMOLLM2, 7)


@pytest.fixture(scope="module")
def model():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        vocab_size=64,
        attn_implementation="eager",  # as matrix products, which torch's counter sees
    )
    return LlamaForCausalLM(config).eval()


def test_a_forward_pass_computes_what_torch_counts(model):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        model(input_ids=torch.zeros(1, 1, dtype=torch.long), use_cache=False)
    assert roofline.forward_cost(model.config, 1).num_flops == counter.get_total_flops()


@pytest.mark.parametrize(("num_new", "num_cached"), [(1, 12), (5, 0)])
def test_every_timed_pass_sees_the_tokens_that_it_says(model, num_new, num_cached):
    seen = []

    def see(module, inputs, given, output):
        cache = given.get("cache")
        seen.append((given["input_ids"].shape[1], cache.get_seq_length() if cache else 0))

    hook = model.register_forward_hook(see, with_kwargs=True)
    try:
        assert roofline.measure_forward(model, num_new, num_cached) > 0
    finally:
        hook.remove()
    timed = seen[1:] if num_cached else seen  # the first one fills the cache
    assert set(timed) == {(num_new, num_cached + num_new if num_cached else 0)}
    assert len(timed) > 1


def test_measuring_gives_two_finite_speeds():
    assert 0 < roofline.measure_bandwidth(num_bytes=2**20) < 1e15
    assert 0 < roofline.measure_matmul_flops(size=64) < 1e17


def test_a_gpu_is_waited_for_before_and_after_each_run(monkeypatch):
    import torch

    happened = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: happened.append("wait"))
    roofline._best_seconds(lambda: happened.append("work"), "cuda:0", runs=2)
    assert happened == ["work", *["wait", "work", "wait"] * 2]
    happened.clear()
    roofline._best_seconds(lambda: happened.append("work"), "cpu", runs=2)
    assert happened == ["work"] * 3


def test_tensors_are_made_where_they_are_asked_for():
    """The device "meta" computes nothing, and its tensors meet no others."""
    assert roofline.measure_bandwidth(num_bytes=2**20, device="meta") > 0
    assert roofline.measure_matmul_flops(size=64, device="meta") > 0
    assert roofline.measure_machine("meta").ridge > 0
