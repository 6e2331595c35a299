"""Text to tokens and back, in the API process: no torch, no `transformers`, which need seconds.

The tokenizer is the checkpoint's own tokenizer.json, run by `tokenizers`; the chat template is
rendered by Jinja in its sandbox, with what `transformers` gives a template.
"""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from labkit.model import tiny
from labkit.model.checkpoint import ModelError, read_json
from labkit.model.sources import TINY, resolve

SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token")


class TemplateRefusal(ValueError):
    """The model's chat template refuses the messages; the text is its reason."""


class TextSide:
    """A model's tokenizer and chat template. `decode` is what `TextStream` asks of a tokenizer."""

    def __init__(self, backend: Tokenizer, template: str | None, specials: dict[str, str]):
        self.backend, self.specials = backend, specials
        self.backend.no_truncation()
        self.backend.no_padding()
        self.template = environment().from_string(template) if template else None
        added = backend.get_added_tokens_decoder()
        self.special_ids = {token_id for token_id, token in added.items() if token.special}
        self.is_byte_level = "ByteLevel" in str(json.loads(backend.to_str()).get("decoder"))
        self.token_bytes = lru_cache(maxsize=65536)(self.find_token_bytes)

    @classmethod
    def load(cls, model: str) -> "TextSide":
        """The text side of a model by name or path. Raises ModelError."""
        if model == TINY:
            first, bos, eos = tiny.SPECIAL_TOKENS
            specials = {"bos_token": bos, "eos_token": eos, "unk_token": first, "pad_token": eos}
            return cls(tiny.tiny_backend(), tiny.CHAT_TEMPLATE, specials)
        folder = resolve(model)
        if not (folder / "tokenizer.json").exists():
            raise ModelError(
                f"{folder} has no tokenizer.json; write one with transformers: "
                "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
            )
        try:
            backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # tokenizers raises nothing narrower
            raise ModelError(f"{folder / 'tokenizer.json'} can't be read: {error}") from None
        file = folder / "tokenizer_config.json"
        config = read_json(file) if file.exists() else {}
        specials = {name: text_of(config[name]) for name in SPECIAL if config.get(name)}
        try:
            return cls(backend, read_template(folder, config), specials)
        except TemplateError as error:
            raise ModelError(f"the chat template in {folder} can't be read: {error}") from None

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that the tokenizer puts around it."""
        return self.tokens(text)

    def tokens(self, text: str, **options) -> list[int]:
        """A batch of one text: other threads go on meanwhile, which `backend.encode` stops."""
        [encoded] = self.backend.encode_batch_fast([text], **options)
        return encoded.ids

    def encode_chat(self, messages: Sequence[dict]) -> list[int]:
        """The tokens of a conversation, ready to be answered. Raises TemplateRefusal."""
        return self.tokens(self.render(messages), add_special_tokens=False)

    def render(self, messages: Sequence[dict]) -> str:
        """The conversation as text. Raises TemplateRefusal."""
        if self.template is None:
            raise TemplateRefusal("this model has no chat template; use /v1/completions")
        try:
            return self.template.render(
                messages=list(messages), add_generation_prompt=True, tools=None, documents=None,
                **self.specials,
            )  # fmt: skip
        except Exception as error:  # it is somebody else's code, and may fail in any way
            raise TemplateRefusal(str(error) or type(error).__name__) from None

    def decode(
        self,
        token_ids: Sequence[int],
        skip_special_tokens: bool = True,
        clean_up_tokenization_spaces: bool = False,
    ) -> str:
        """The text of tokens; spaces are never tidied."""
        return self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)

    def find_token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token stands for, decoded alone: it may be half a character."""
        token = self.backend.id_to_token(token_id)
        if token is None:
            return b""
        if self.is_byte_level:
            letters = byte_of_letter()
            if all(letter in letters for letter in token):
                return bytes(letters[letter] for letter in token)
        if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes.fromhex(token[3:5])
        return token.replace("▁", " ").encode()


@lru_cache(maxsize=1)
def byte_of_letter() -> dict[str, int]:
    """GPT-2's letters for bytes: those that can be printed stand for themselves, the others for
    letters from U+0100 on, in order."""
    alphabet = set(ByteLevel.alphabet())
    own = {letter: ord(letter) for letter in alphabet if ord(letter) < 256}
    others = sorted(alphabet - own.keys())
    missing = sorted({*range(256)} - {*own.values()})
    return own | dict(zip(others, missing, strict=True))


def text_of(token) -> str:
    """A special token as tokenizer_config.json may have it: text, or an object around it."""
    return token["content"] if isinstance(token, dict) else str(token)


def read_template(folder: Path, config: dict) -> str | None:
    """The chat template: a file of its own, or in the configuration, where there may be several."""
    file = folder / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        return named.get("default")
    return template


def environment() -> ImmutableSandboxedEnvironment:
    """Where templates run: a checkpoint's template is somebody else's code."""

    def raise_exception(reason: str):
        raise TemplateError(reason)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
            sort_keys=sort_keys,
        )  # fmt: skip

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return made


class Generation(Extension):
    """`{% generation %}`: marks the assistant's own words for training; here only its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body, lineno=line)
