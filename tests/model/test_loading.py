"""One call gives model, tokenizer and end tokens, whatever the source."""

import gc

import pytest
import torch

from labkit.model import load
from labkit.model.checkpoint import ModelError


def greedy(loaded, message, count):
    prompt = torch.tensor([loaded.encode_chat(message)])
    with torch.no_grad():
        output = loaded.model.generate(prompt, max_new_tokens=count, do_sample=False)
    return output[0, prompt.shape[1] :].tolist()


def test_tiny_is_the_same_every_time_and_on_every_platform():
    loaded = load("tiny")
    assert loaded.path is None
    assert greedy(loaded, "a", 12) == [88, 218, 91, 250, 17, 53, 250, 71, 17, 213, 110, 1]


def test_tiny_has_the_shape_that_tests_count_on():
    config = load("tiny").model.config
    assert (config.num_hidden_layers, config.hidden_size, config.head_dim) == (2, 64, 16)
    assert (config.num_attention_heads, config.num_key_value_heads) == (4, 2)
    assert config.vocab_size == 259


def test_tiny_says_different_things_to_different_prompts():
    loaded = load("tiny")
    answers = [greedy(loaded, message, 16) for message in ("a", "abc", "Hello there")]
    assert len({tuple(answer) for answer in answers}) == 3
    assert all(len(set(answer)) >= 8 for answer in answers)


@pytest.mark.parametrize("text", ["Hello", "한글 스트리밍", "a\n\tb  🙂", "\u0000\u007f"])
def test_tiny_has_one_token_for_each_byte_and_gives_every_text_back(text):
    tokenizer = load("tiny").tokenizer
    token_ids = tokenizer(text)["input_ids"]
    assert len(token_ids) == len(text.encode("utf-8"))
    assert tokenizer.decode(token_ids) == text


def test_tiny_speaks_the_chat_template_of_the_real_model():
    loaded = load("tiny")
    prompt = loaded.tokenizer.decode(loaded.encode_chat("Hi"))
    assert prompt == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert loaded.tokenizer.convert_ids_to_tokens(list(loaded.eos_token_ids)) == ["<|im_end|>"]


def test_a_folder_gives_the_model_that_was_saved_there(tiny_checkpoint):
    loaded = load(str(tiny_checkpoint))
    assert loaded.path == tiny_checkpoint
    assert not loaded.model.training
    assert loaded.eos_token_ids == frozenset({258})
    assert greedy(loaded, "a", 12) == greedy(load("tiny"), "a", 12)


@pytest.mark.parametrize("enabled", [True, False])
def test_loading_leaves_garbage_collection_as_it_was(tmp_path, enabled):
    (gc.enable if enabled else gc.disable)()
    try:
        load("tiny")
        with pytest.raises(ModelError):
            load(str(tmp_path))
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_dtype_is_the_one_asked_for(tiny_checkpoint):
    assert load(str(tiny_checkpoint), dtype="bfloat16").model.dtype == torch.bfloat16
    assert load("tiny").model.dtype == torch.float32
    with pytest.raises(ModelError, match="'int3'.*float32, bfloat16, float16"):
        load("tiny", dtype="int3")


@pytest.mark.parametrize("name", ["gpt-5", "smollm2", "./nothing/here", "/nothing/here", "~/x"])
def test_an_unknown_name_is_refused_with_what_is_accepted(name):
    with pytest.raises(ModelError, match="no model") as error:
        load(name)
    assert repr(name) in str(error.value) and "smollm2-135m" in str(error.value)


def test_a_hub_that_is_out_of_reach_is_told_apart_from_an_unknown_name(monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match="hub can't be asked for the model 'Qwen/Qwen3-0.6B'"):
        load("Qwen/Qwen3-0.6B")
