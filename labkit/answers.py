"""Answers as text, whole and in pieces, from an engine's events: for the library and the server."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from labkit.engine.request import FinishReason, StepEvent
from labkit.model.sampling_params import SamplingParams
from labkit.model.text import TextStream

if TYPE_CHECKING:
    from labkit.model.sampling import Logprobs


@dataclass
class Output:
    """One answer. `token_ids` are all tokens that were made, the one that ended it included."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list["Logprobs"] = field(default_factory=list)  # if they were asked for
    finish_reason: FinishReason | None = None
    error: str | None = None  # with finish_reason "error"


@dataclass
class Completion:
    """One prompt and its answers: as many as `SamplingParams.n`."""

    request_id: str
    prompt_token_ids: list[int]
    outputs: list[Output]

    @property
    def text(self) -> str:
        return self.outputs[0].text


@dataclass(frozen=True)
class Piece:
    """What is new of one answer in a stream. `text` is often empty: half a character waits."""

    index: int  # which of the n answers
    text: str
    token_id: int | None
    finish_reason: FinishReason | None = None
    logprobs: "Logprobs | None" = None
    error: str | None = None


class Answer:
    """Turns the events of one request into text, and ends it at a stop string.

    `pieces` gets what is new; several answers may share it. `abort` ends the request in the engine.
    """

    def __init__(
        self,
        request_id: str,
        params: SamplingParams,
        tokenizer,
        pieces: deque[Piece],
        abort: Callable[[str], object],
        index: int = 0,
    ):
        self.request_id, self.params, self.index = request_id, params, index
        self.pieces, self.abort = pieces, abort
        self.stream = TextStream(tokenizer, params.stop, params.skip_special_tokens)
        self.output = Output()

    @property
    def is_open(self) -> bool:
        return self.output.finish_reason is None

    def take(self, event: StepEvent) -> None:
        """Adds the token of an event; nothing after a stop string has ended the answer."""
        if not self.is_open:
            return
        text, reason, logprobs = "", event.finish_reason, getattr(event, "logprobs", None)
        if event.token_id is not None:
            self.output.token_ids.append(event.token_id)
            if logprobs is not None:
                self.output.logprobs.append(logprobs)
            if reason != "stop":  # the token that ends a text is not part of it
                may_stop = len(self.output.token_ids) > self.params.min_tokens
                text = self.stream.push(event.token_id, may_stop)
        if self.stream.stopped is not None:
            self.abort(self.request_id)
            reason = "stop"
        self.add(text, reason, event.token_id, logprobs, getattr(event, "error", None))

    def end(self, reason: FinishReason, error: str | None = None) -> None:
        """Ends the answer with no further token."""
        if self.is_open:
            self.add("", reason, error=error)

    def add(self, text: str, reason, token_id=None, logprobs=None, error=None) -> None:
        """A piece; the last one, when there is a reason, with the text that was held back."""
        if reason is not None:
            text += self.stream.flush()
            reason = reason if self.stream.stopped is None else "stop"
        self.output.text += text
        self.output.finish_reason, self.output.error = reason, error
        self.pieces.append(Piece(self.index, text, token_id, reason, logprobs, error))
