"""Loads a checkpoint: with `transformers` for the first rungs, into labkit's own decoder after."""

import ctypes
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from labkit.model.checkpoint import ModelError, read_json
from labkit.model.convert import quiet_transformers
from labkit.model.sources import TINY, resolve
from labkit.model.tiny import tiny_model, tiny_tokenizer

DTYPES = ("float32", "bfloat16", "float16")
INT8 = "int8"


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory with its tokenizer. `path` is None for `tiny`, which has no files."""

    name: str
    path: Path | None
    model: Any  # a `transformers` causal language model in eval mode, or a `Decoder`
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

        refuse_unusable(device)
        model, tokenizer = read(path) if path else (tiny_model(), tiny_tokenizer())
    model = model.to(device=device, dtype=getattr(torch, dtype)).eval()
    return LoadedModel(name, path, model, tokenizer, as_ids(model.generation_config.eos_token_id))


def load_decoder(
    name: str,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    with_tokenizer: bool = True,
    attention: str | None = None,
) -> LoadedModel:
    """The same with labkit's own decoder, which also knows the dtype "int8" (on a CPU).

    Weights are read one at a time: memory never holds the model twice. Who works on tokens only
    is ready sooner without a tokenizer; `LoadedModel.tokenizer` is None then. `attention` is one of
    `kernels.IMPLEMENTATIONS`, the fastest if not told; with one the decoder is the plain one on
    every device. "torch" is slow, and every line of it can be read.
    """
    accepted = (*DTYPES, INT8)
    if dtype not in accepted:
        raise ModelError(f"dtype {dtype!r} is not known; accepted are {', '.join(accepted)}")
    if dtype == INT8 and device != "cpu":
        raise ModelError(f"dtype 'int8' runs on the CPU only, not on {device!r}; try bfloat16")
    path = None if name == TINY else resolve(name)
    with garbage_left(), ThreadPoolExecutor(1) as beside:
        if path and with_tokenizer:  # Python's work, while the weights are packed
            its_tokenizer = beside.submit(read_tokenizer, path)
        import torch

        from labkit.kernels import implementation
        from labkit.model.config import DecoderConfig
        from labkit.model.cpu_decoder import CPUDecoder
        from labkit.model.decoder import INT8_PARTS, Decoder

        refuse_unusable(device)
        if path is None:
            tiny = tiny_model()
            config, tensors = tiny.config.to_dict(), tiny.state_dict().get
            ends = tiny.generation_config.eos_token_id
        else:
            config, tensors = read_json(path / "config.json"), reader(path)
            ends = read_ends(path, config)
        shape = DecoderConfig.read(config)
        kind = Decoder
        if attention:
            kind = partial(Decoder, attention=implementation(torch.device(device).type, attention))
        elif torch.device(device).type == "cpu":
            kind = CPUDecoder
        if dtype == INT8:
            from labkit.model.rotation import rotated

            tensors = rotated(tensors, shape.hidden_size, shape.tied_head)
            decoder = kind(replace(shape, tied_head=False), tensors, int8=INT8_PARTS)
        else:
            decoder = kind(shape, tensors, dtype=getattr(torch, dtype), device=device)
        decoder.prepare()
        tokenizer = None
        if with_tokenizer:
            tokenizer = its_tokenizer.result() if path else tiny_tokenizer()
    give_back_memory()
    return LoadedModel(name, path, decoder, tokenizer, as_ids(ends))


def give_back_memory() -> None:
    """Has glibc return to the system what was free again after loading: some 30 MB."""
    with suppress(OSError, AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def refuse_unusable(device: str) -> None:
    """Raises ModelError unless torch can put a tensor there."""
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # the second from a torch without CUDA
        reason = str(error).partition("\n")[0]
        raise ModelError(
            f"device {device!r} can't be used ({reason}); take 'cpu', or 'cuda' with a GPU"
        ) from None


def reader(path: Path) -> Callable:
    """A function from a tensor's name to the tensor, read from whichever file has it; or None.

    To be copied, not kept: as long as one tensor refers to the file, all of it stays in memory.
    """
    from safetensors import safe_open

    files = [safe_open(file, framework="pt") for file in sorted(path.glob("*.safetensors"))]
    place = {name: file for file in files for name in file.keys()}  # noqa: SIM118

    def read(name: str):
        return place[name].get_tensor(name) if name in place else None

    return read


def read_ends(path: Path, config: dict):
    """The end-of-sequence ids: generation_config.json goes before config.json."""
    generation = path / "generation_config.json"
    ends = read_json(generation).get("eos_token_id") if generation.exists() else None
    return config.get("eos_token_id") if ends is None else ends


def as_ids(ends) -> frozenset[int]:
    """A set, from what configurations have: None, one id, or a list."""
    return frozenset([] if ends is None else [ends] if isinstance(ends, int) else ends)


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
    from transformers import AutoModelForCausalLM

    try:
        with quiet_transformers():
            model = AutoModelForCausalLM.from_pretrained(path, dtype="auto", local_files_only=True)
    except Exception as error:  # each of the readers raises kinds of its own
        raise ModelError(f"{path} could not be read: {error}") from error
    return model, read_tokenizer(path)


def read_tokenizer(path: Path):
    """The tokenizer of a checkpoint."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as error:  # each of the readers raises kinds of its own
        raise ModelError(f"{path} could not be read: {error}") from error
