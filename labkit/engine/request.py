"""One request, from arrival to its last token, and the events that an engine gives back."""

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "abort"]


@dataclass
class Request:
    """What a client asked for and how far it has come.

    Invariant: at most `max_tokens` output tokens, and none after `finish_reason` is set.
    Only the engine that holds the request changes it.

    Raises ValueError for an empty prompt or `max_tokens` below 1: a request that an engine
    can't finish is refused before it takes a place in line.
    """

    request_id: str
    prompt_token_ids: list[int]
    max_tokens: int = 16
    ignore_eos: bool = False  # go on after an end-of-sequence token; benchmarks need equal lengths
    arrival: float = 0.0  # seconds, on the clock of whoever made the request
    output_token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None

    def __post_init__(self):
        if not self.prompt_token_ids:
            raise ValueError(
                f"request {self.request_id!r}: the prompt has 0 tokens, at least 1 is needed; "
                "a model predicts the next token from the ones before"
            )
        if self.max_tokens < 1:
            raise ValueError(
                f"request {self.request_id!r}: max_tokens is {self.max_tokens}, "
                "at least 1 is needed; ask for one token or more"
            )

    @property
    def token_ids(self) -> list[int]:
        """Prompt and output so far, in order: what the model continues."""
        return self.prompt_token_ids + self.output_token_ids


@dataclass(frozen=True)
class TokenEvent:
    """One new token of one request. `finish_reason` is set on the last one.

    `time` is when the token existed, in seconds on the engine's clock. The token that ends
    a request with reason "stop" is an event too; whoever turns tokens into text leaves it out.
    """

    request_id: str
    token_id: int
    finish_reason: FinishReason | None
    time: float
