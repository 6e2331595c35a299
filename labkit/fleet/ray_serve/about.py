"""What the front of several replicas tells its router of a request: tokens, as the engines count.

A router over HTTP has no tokenizer and hashes text (`asked`); here the model is known, so hashes
are those of the blocks themselves.
"""

from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from labkit.engine.blocks import hash_block, root_hash
from labkit.fleet.replicas import UNTOLD_TOKENS
from labkit.serving.bodies import ChatBody, CompletionBody
from labkit.serving.errors import UNREADABLE, APIError
from labkit.serving.text import TemplateRefusal, TextSide


@dataclass(frozen=True)
class About:
    """What a router is told of a request: lengths and hashes, no text."""

    num_prompt_tokens: int = 0
    max_tokens: int = 0
    tenant: str = ""
    priority: int = 0
    block_hashes: list[bytes] = field(default_factory=list)

    @property
    def prompt_token_ids(self) -> range:
        """As long as the prompt: all that the policies ask of it."""
        return range(self.num_prompt_tokens)


class Prompts:
    """What a router is told of requests: their length, and the names of their blocks, which are
    those that the engines' block pools use."""

    def __init__(self, models: dict[str, str], block_size: int):
        self.models, self.block_size = models, block_size
        self.text = lru_cache(maxsize=None)(lambda name: TextSide.load(models[name]))

    def model(self, body: bytes) -> str:
        """The model that is asked for; the first one, if none is named. Raises APIError."""
        try:
            name = msgspec.json.decode(body).get("model")
        except (*UNREADABLE, AttributeError):
            name = None
        if isinstance(name, str) and name not in self.models:
            told = f"there is no model {name!r}; this server has {', '.join(self.models)}"
            raise APIError(404, told, "model", "model_not_found")
        return name if isinstance(name, str) else next(iter(self.models))

    def about(self, path: str, body: bytes, model: str) -> About:
        """Of a body that is no request nothing is told: a replica will say what is wrong."""
        try:
            asked, prompt, most = self.read(path, body, self.text(model))
        except (APIError, TemplateRefusal, *UNREADABLE):  # pydantic raises ValueErrors
            return About()
        return About(
            len(prompt), (most or UNTOLD_TOKENS) * (asked.n or 1),
            asked.user or "", asked.priority or 0,
            self.hashes(prompt, asked.cache_salt or ""),
        )  # fmt: skip

    def read(self, path: str, body: bytes, text: TextSide) -> tuple:
        """The request, the tokens of its (first) prompt, the most that may be generated."""
        if path.endswith("/chat/completions"):
            asked = ChatBody.model_validate_json(body)
            prompt = text.encode_chat([message.plain() for message in asked.messages])
            return asked, prompt, asked.limit()
        asked = CompletionBody.model_validate_json(body)
        first = asked.prompt[0]
        prompt = text.encode(first) if isinstance(first, str) else first
        return asked, prompt, asked.max_tokens

    def hashes(self, prompt: list[int], salt: str) -> list[bytes]:
        size, found = self.block_size, [root_hash(salt)]
        for start in range(0, len(prompt) - size + 1, size):
            found.append(hash_block(found[-1], prompt[start : start + size]))
        return found[1:]
