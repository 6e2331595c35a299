"""The engine on a GPU: the tokens of the CPU, with Triton, with torch, with CUDA graphs."""

import pytest
import torch

from labkit import SamplingParams
from labkit.library import Engine

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
PROMPTS = [[1, 2, 3], list(range(5, 60)), [9] * 17, [7]]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


def tokens(**options) -> list[list[int]]:
    engine = Engine.load("tiny", num_blocks=64, max_num_batched_tokens=32, **options)
    return [answer.outputs[0].token_ids for answer in engine.generate(PROMPTS, GREEDY)]


@pytest.fixture(scope="module")
def wanted():
    return tokens(device="cpu")


@pytest.mark.parametrize("attention", [None, "triton", "gathered", "torch"])
def test_the_tokens_are_those_of_the_cpu(wanted, attention):
    assert tokens(device="cuda", attention=attention) == wanted


@pytest.mark.parametrize("attention", ["triton", "gathered"])
def test_cuda_graphs_change_nothing(wanted, attention):
    assert tokens(device="cuda", attention=attention, cuda_graphs=True) == wanted


@pytest.mark.parametrize("rung", ["cached", "paged", "preemptive"])
def test_the_other_rungs_on_a_gpu(wanted, rung):
    engine = Engine.load("tiny", rung=rung, device="cuda")
    found = [answer.outputs[0].token_ids for answer in engine.generate(PROMPTS, GREEDY)]
    assert found == wanted


def test_blocks_are_swapped_to_the_host_and_back(wanted):
    engine = Engine.load(
        "tiny", rung="preemptive", device="cuda", num_blocks=8, preemption="swap",
        max_num_seqs=4, prefix_caching=False,
    )  # fmt: skip
    found = [answer.outputs[0].token_ids for answer in engine.generate(PROMPTS, GREEDY)]
    assert found == wanted
