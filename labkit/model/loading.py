"""Loads a checkpoint with `transformers`: what the first rungs of the ladder run on."""

import gc
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.model.checkpoint import ModelError
from labkit.model.convert import quiet_transformers
from labkit.model.sources import TINY, resolve
from labkit.model.tiny import tiny_model, tiny_tokenizer

DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory with its tokenizer. `path` is None for `tiny`, which has no files."""

    name: str
    path: Path | None
    model: Any  # a `transformers` causal language model, in eval mode
    tokenizer: Any  # a `transformers` tokenizer
    eos_token_ids: frozenset[int]

    def encode_chat(self, message: str) -> list[int]:
        """Token ids of one user message in the model's chat template, ready to be answered."""
        return self.tokenizer.apply_chat_template(
            [{"role": "user", "content": message}], add_generation_prompt=True, return_dict=False
        )


def load(name: str, *, dtype: str = "float32", device: str = "cpu") -> LoadedModel:
    """Model and tokenizer by name or path (see `sources.resolve`), in memory on `device`.

    Raises ModelError for a model that can't be had or read and for an unknown `dtype`.
    """
    if dtype not in DTYPES:
        raise ModelError(f"dtype {dtype!r} is not known; accepted are {', '.join(DTYPES)}")
    path = None if name == TINY else resolve(name)
    with garbage_left():
        import torch

        model, tokenizer = read(path) if path else (tiny_model(), tiny_tokenizer())
    model = model.to(device=device, dtype=getattr(torch, dtype)).eval()
    ends = model.generation_config.eos_token_id
    ends = [] if ends is None else [ends] if isinstance(ends, int) else ends
    return LoadedModel(name, path, model, tokenizer, frozenset(ends))


@contextmanager
def garbage_left():
    """A `with` block in which Python looks for no garbage.

    Importing torch and transformers makes 400,000 objects that nearly all stay; to search them
    for garbage 900 times took a seventh of the time of a first load.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read(path: Path):
    """Model and tokenizer of a checkpoint that `checkpoint.checked` has looked at."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(path, dtype="auto", local_files_only=True)
        return model, AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # each of the readers raises kinds of its own
        raise ModelError(f"{path} could not be read: {error}") from error
