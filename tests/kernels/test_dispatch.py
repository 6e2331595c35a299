"""One function for paged attention on every device, and a decoder that can be told which to use."""

import pytest
import torch
from test_attention import Case

from labkit import SamplingParams, rungs
from labkit.kernels import IMPLEMENTATIONS, attention_for, default_for, paged_attention
from labkit.library import Engine
from labkit.model.kv_cache import KVCache
from labkit.model.loading import load_decoder

HERE = [name for name in IMPLEMENTATIONS if name != "triton" or torch.cuda.is_available() is False]


@pytest.fixture(scope="module")
def case():
    return Case([(37, 1), (5, 5), (64, 33), (1, 1)], heads=6, kv_heads=2, unused=float("nan"))


@pytest.mark.parametrize("name", HERE)
def test_all_implementations_agree_with_the_definition(case, name):
    if name == "triton":
        pytest.importorskip("triton", reason="triton is there on Linux only")
    found = paged_attention(case.q, case.cache, case.batch, name)
    torch.testing.assert_close(found, case.dense(), rtol=1e-4, atol=1e-5)


def test_the_device_chooses_if_nobody_else_does(case):
    assert type(attention_for(case.batch)).__name__ == "CPUAttention"
    assert default_for("cuda") in ("triton", "gathered")


def test_one_that_is_unknown_or_cannot_run_is_refused_with_those_there_are(case, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    for name in ("flash", "triton"):
        with pytest.raises(ValueError, match=f"'{name}' does not run on 'cpu'.*gathered, torch"):
            attention_for(case.batch, name)


@pytest.mark.parametrize("name", ["triton", "gathered", "torch"])
def test_a_decoder_serves_the_same_tokens_with_each(name):
    if name == "triton":
        pytest.importorskip("triton", reason="triton is there on Linux only")
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    prompts, texts = [[1, 2, 3], list(range(5, 40))], []
    for chosen in (None, name):
        loaded = rungs.load_for("continuous", "tiny", "float32", "cpu", attention=chosen)
        engine = Engine(loaded, "continuous", num_blocks=16, max_num_batched_tokens=24)
        texts.append([answer.outputs[0].token_ids for answer in engine.generate(prompts, params)])
    assert texts[0] == texts[1]


def test_keys_and_values_come_to_the_same_place_by_kernel_and_by_torch():
    pytest.importorskip("triton", reason="triton is there on Linux only")
    from labkit.kernels.gpu.launch import write

    config = load_decoder("tiny").model.config
    plain, by_kernel = (KVCache(config, 4, 8, torch.float32, "cpu") for _ in range(2))
    by_kernel.write_slots = write
    slots = torch.tensor([3, 31, 8])
    new = torch.randn(3, 2 * config.num_kv_heads, config.head_dim)
    for cache in (plain, by_kernel):
        cache.data.zero_()
        cache.write(1, cache.rows(slots), new)
    assert torch.equal(plain.data, by_kernel.data) and plain.data.any()
