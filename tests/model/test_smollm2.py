"""The converted default model is SmolLM2-135M-Instruct, in tokens and in answers.

Token ids below were published by users of the original checkpoint on the hub, none was made
with the converted one.
"""

import pytest

from labkit.model import load
from labkit.model.loading import LoadedModel
from labkit.model.sources import DEFAULT_MODEL, resolve

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTION = [1780, 314, 260, 3575, 282, 4649, 47]
PUBLISHED = {
    "Hello, world!": [19556, 28, 905, 17],
    "I'm here, they're not  ": [57, 5248, 1535, 28, 502, 2316, 441, 256],
    "  leading and   multiple   spaces  ": [216, 2899, 284, 256, 2701, 256, 5600, 256],
    "In 2026, the weather": [788, 216, 34, 32, 34, 38, 28, 260, 3947],
    "123 + 456 = 579": [33, 34, 35, 1232, 216, 36, 37, 38, 446, 216, 37, 39, 41],
    "snake_case and camelCase42": [48284, 79, 7544, 284, 32782, 10802, 36, 34],
    "def f(n):\n    return n+1\n": [1604, 275, 24, 94, 727, 472, 1003, 304, 27, 33, 198],
    "né 日本語の": [94, 2756, 17097, 241, 115, 40993, 179, 120, 248, 26453],
    "emoji 🙂 test": [391, 33777, 47526, 1028],
    "What is the capital of France?": QUESTION,
    "<|im_start|>user\nHi<|im_end|>": [1, 4093, 198, 26843, 2],
}


@pytest.fixture(scope="module")
def tokenizer():
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(resolve(DEFAULT_MODEL))


@pytest.mark.parametrize("text", PUBLISHED)
def test_text_becomes_the_published_tokens_and_comes_back(tokenizer, text):
    assert tokenizer(text)["input_ids"] == PUBLISHED[text]
    assert tokenizer.decode(PUBLISHED[text]) == text


@pytest.mark.parametrize(
    "text, pieces",
    [
        ("a  42", ["a", "ĠĠ", "4", "2"]),
        ("if x:\n    1", ["if", "Ġx", ":", "ĊĠĠĠĠ", "1"]),
        (" ½", ["Ġ", "Â½"]),
    ],
)
def test_digits_are_split_off_before_anything_else(tokenizer, text, pieces):
    """A GGUF doesn't say so: GPT-2's rule makes "Ġ", "Ġ" of the two blanks before 42."""
    assert tokenizer.tokenize(text) == pieces


def test_special_tokens_are_those_of_the_original(tokenizer):
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (1, 2)
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id) == (2, 0)
    assert (len(tokenizer), tokenizer.model_max_length) == (49152, 8192)
    assert tokenizer.decode([1, 4093, 2, 16, 0], skip_special_tokens=True) == "user"


def test_the_chat_template_puts_the_default_system_prompt_first(tokenizer):
    chat = LoadedModel(DEFAULT_MODEL, None, None, tokenizer, frozenset({2}))
    assert tokenizer.decode(chat.encode_chat("Hi")) == (
        f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_weights_give_the_published_greedy_answer():
    import torch

    loaded = load(DEFAULT_MODEL)
    prompt = loaded.encode_chat("What is the capital of France?")
    assert prompt[-16:] == [1, 4093, 198, *QUESTION, 2, 198, 1, 520, 9531, 198]
    output = loaded.model.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)
    assert output[0, len(prompt) :].tolist() == [504, 3575, 282, 4649, 314, 7042, 30, 2]
    assert loaded.eos_token_ids == frozenset({2})
    assert loaded.model.config.tie_word_embeddings
