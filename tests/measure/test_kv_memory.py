"""The bytes of a token in the cache, and how many sequences fit beside a model."""

import pytest

from labkit.measure.experiments.caching import PUBLIC
from labkit.measure.kv_memory import sequences_that_fit
from labkit.model.config import DecoderConfig
from labkit.model.facts import num_parameters


def decoder_config(name):
    values = {key: value for key, value in vars(PUBLIC[name]).items() if value is not None}
    tied = name.startswith(("SmolLM2", "Qwen3"))
    family = "qwen3" if name.startswith("Qwen3") else "llama"
    return DecoderConfig.read({**values, "model_type": family, "tie_word_embeddings": tied})


@pytest.mark.parametrize("name", PUBLIC)
def test_a_token_costs_what_the_decoder_s_own_configuration_says(name):
    per_token, _ = sequences_that_fit(PUBLIC[name], 1024, 10**12, 0)
    assert per_token == 2 * decoder_config(name).kv_numbers_per_token


@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_sizes_add_up_to_the_parameters_that_are_published(name):
    assert num_parameters(decoder_config(name)) == PUBLIC[name].num_params


def test_as_many_sequences_as_a_real_cache_has_room_for():
    import torch

    from labkit.model.kv_cache import KVCache

    config = decoder_config("SmolLM2-135M")
    _, fit = sequences_that_fit(PUBLIC["SmolLM2-135M"], 64, 2**26, 0, kv_bits=32)
    sizes = [KVCache(config, n, 64, torch.float32, "cpu").num_bytes for n in (fit, fit + 1)]
    assert sizes[0] <= 2**26 < sizes[1]
