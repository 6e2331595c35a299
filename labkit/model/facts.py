"""What a checkpoint says of its model, without its weights: shape, size, words. No torch."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

from labkit.model import tiny
from labkit.model.checkpoint import ModelError, read_json
from labkit.model.config import DecoderConfig
from labkit.model.loading import as_ids, read_ends
from labkit.model.sources import TINY, resolve

WORD = re.compile(r"[Ġ▁]?[A-Za-z]+")  # Ġ and ▁ are how vocabularies write a space
PRODUCTS = {  # as in `DecoderConfig.biased`
    "qkv": ("q_proj", "k_proj", "v_proj"), "o": ("o_proj",), "gate_up": ("gate_proj", "up_proj"),
    "down": ("down_proj",),
}  # fmt: skip


@dataclass(frozen=True)
class Facts:
    """`path` is None for `tiny`. `words` are the tokens of plain letters, in order; may be ()."""

    name: str
    path: Path | None
    config: DecoderConfig
    eos_token_ids: frozenset[int]
    words: tuple[int, ...]


def read_facts(name: str) -> Facts:
    """The facts of a model by name or path. A folder needs no weights. Raises ModelError."""
    if name == TINY:
        config = tiny.CONFIG
        ends = as_ids(config["eos_token_id"])
        return Facts(name, None, DecoderConfig.read(config), ends, words_of(tiny.tiny_backend()))
    path = Path(name) if Path(name, "config.json").is_file() else resolve(name)
    config = read_json(path / "config.json")
    ends, shape = as_ids(read_ends(path, config)), DecoderConfig.read(config)
    return Facts(name, path, shape, ends, words_in(path / "tokenizer.json"))


def words_in(file: Path) -> tuple[int, ...]:
    """The words of a tokenizer.json; none where there is no such file."""
    from tokenizers import Tokenizer

    if not file.is_file():
        return ()
    try:
        return words_of(Tokenizer.from_file(str(file)))
    except Exception as error:  # tokenizers raises nothing narrower
        raise ModelError(f"{file} can't be read: {error}") from None


def words_of(tokenizer) -> tuple[int, ...]:
    """Tokens of ASCII letters, perhaps after a space; none that was added, as special ones are."""
    added = tokenizer.get_added_tokens_decoder()
    pieces = tokenizer.get_vocab(with_added_tokens=False).items()
    return tuple(sorted(i for piece, i in pieces if i not in added and WORD.fullmatch(piece)))


def num_parameters(config: DecoderConfig) -> int:
    """All numbers of a model, counted from its shape; a tied head is not counted again."""
    layer = sum(prod(config.shape_of(name)) for name in names_in_layer(config))
    tables = config.vocab_size * config.hidden_size * (1 if config.tied_head else 2)
    return config.num_layers * layer + tables + config.hidden_size


def num_read_in_step(config: DecoderConfig) -> int:
    """Those that every step reads: not the table of the embeddings, unless it is the head too."""
    table = config.vocab_size * config.hidden_size
    return num_parameters(config) - (0 if config.tied_head else table)


def names_in_layer(config: DecoderConfig) -> Iterator[str]:
    """The tensors of one layer, as `DecoderConfig.shape_of` knows them."""
    yield from ("input_layernorm.weight", "post_attention_layernorm.weight")
    if config.qk_norm:
        yield from ("q_norm.weight", "k_norm.weight")
    for product, parts in PRODUCTS.items():
        for part in parts:
            yield f"{part}.weight"
            if product in config.biased:
                yield f"{part}.bias"
