"""Converts the 4-bit GGUF checkpoint to float32 safetensors, once.

Each weight becomes the float32 number that its 4 bits and its block's scale stand for, so
nothing more is lost. `transformers` reads the GGUF (with `gguf` and `accelerate`).
"""

from contextlib import contextmanager
from pathlib import Path


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Writes model, configuration and tokenizer of `gguf` to `folder`.

    `transformers` keeps notes about the quantization in what it reads from a GGUF and refuses
    to save it; the weights therefore move to a plain model of the same shape.
    """
    import torch
    from transformers import LlamaForCausalLM

    with quiet_transformers():
        read = LlamaForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        )
        config = read.config
        for note in ("quantization_config", "_name_or_path", "_model_name_or_path"):
            config.__dict__.pop(note, None)
        plain = LlamaForCausalLM(config)
        plain.load_state_dict(read.state_dict())
        plain.generation_config = read.generation_config
        plain.save_pretrained(folder)
    tokenizer = convert_tokenizer(gguf)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.save_pretrained(folder)


def convert_tokenizer(gguf: Path):
    """The tokenizer of the GGUF, with what a GGUF cannot say about SmolLM2 put back.

    A GGUF names its pre-tokenizer ("smollm") without describing it, and `transformers` takes
    GPT-2's for it. SmolLM2 first splits off every digit, so that numbers of any length are
    built from ten tokens and blanks before a number stay together.
    """
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return tokenizer


@contextmanager
def quiet_transformers():
    """A `with` block in which `transformers` draws no progress bars of its own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
