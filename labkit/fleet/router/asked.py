"""What a router reads of a request: enough to choose a replica, and no tokenizer for it.

A body that can't be read is routed all the same: the replica knows better what is wrong with it.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from labkit.fleet.replicas import UNTOLD_TOKENS
from labkit.serving.errors import UNREADABLE

BYTES_PER_TOKEN = 4  # of JSON text, roughly; token ids come to about as much
BLOCK_BYTES = 128  # some 32 tokens: what a prefix cache shares is about as coarse
MOST_HASHED = 64 * 1024  # bytes of a prompt: who has so much of it has enough
SAFE_PATHS = ("/v1/completions", "/v1/chat/completions", "/v1/embeddings")  # store nothing


class Body(msgspec.Struct):
    """The fields of OpenAI's bodies that matter here. `Raw` is JSON that nobody has looked into."""

    model: str | None = None
    prompt: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()  # of embeddings
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    priority: int | None = None
    user: str | None = None
    cache_salt: str | None = None


decode = msgspec.json.Decoder(Body).decode


@dataclass(eq=False)
class Asked:
    """One request. It has what `routing` looks at: lengths, tenant, priority, hashes of blocks."""

    path: str = "/v1/completions"
    body: Body = field(default_factory=Body)
    session: str = ""
    may_repeat: bool = True  # another replica may get it after this one may have begun

    @cached_property
    def prompt(self) -> bytes:
        """The prompt as it came: JSON."""
        body = self.body
        return bytes(body.messages) or bytes(body.prompt) or bytes(body.input)

    @property
    def prompt_token_ids(self) -> range:
        """As many as there may be; which ones, nobody knows here."""
        return range(len(self.prompt) // BYTES_PER_TOKEN)

    @property
    def max_tokens(self) -> int:
        """The most that may be generated, in all its answers; never below 0, whatever is asked."""
        asked = self.body.max_completion_tokens, self.body.max_tokens, UNTOLD_TOKENS
        most = next(number for number in asked if number is not None)
        return max(most, 0) * max(self.body.n or 1, 1)

    @property
    def tenant(self) -> str:
        return self.body.user or ""

    @property
    def priority(self) -> int:
        return self.body.priority or 0

    @property
    def stream(self) -> bool:
        return bool(self.body.stream)

    @cached_property
    def block_hashes(self) -> list[bytes]:
        """A hash for each beginning of the prompt that is whole blocks long.

        JSON text stands for tokens: of two prompts that begin alike, the JSON does too. What
        never shares a cache (model, salt, chat or not) begins with another hash.
        """
        root = f"{self.path} {self.body.model} {self.body.cache_salt}".encode()
        chain, found = hashlib.blake2b(root, digest_size=16), []
        whole = min(len(self.prompt), MOST_HASHED) // BLOCK_BYTES * BLOCK_BYTES
        for start in range(0, whole, BLOCK_BYTES):
            chain.update(self.prompt[start : start + BLOCK_BYTES])
            found.append(chain.digest())
        return found


def read(
    path: str, headers: Mapping[bytes, bytes], payload: bytes, session_header: bytes
) -> Asked:
    """What is asked for, as far as it can be read."""
    try:
        body = decode(payload)
    except UNREADABLE:  # or a field of another type
        body = Body()
    session = headers.get(session_header, b"").decode("latin-1") or body.user or ""
    lets_go = b"respond-async" in headers.get(b"prefer", b"").lower()
    return Asked(path, body, session, path in SAFE_PATHS and not lets_go)
