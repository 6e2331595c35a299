"""One request over HTTP: what its stream said, when, and what counts as a failure. No I/O."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import msgspec

from labkit.measure.metrics import Latency, latency

WHOLE = ("stop", "length", "tool_calls", "function_call")  # the ends of an answer that is whole


class Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None  # what a server calls the thinking of a model
    reasoning: str | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()


class Choice(msgspec.Struct):
    text: str | None = None  # of /v1/completions
    delta: Delta | None = None  # of /v1/chat/completions
    finish_reason: str | None = None

    @property
    def has_text(self) -> bool:
        delta = self.delta
        if self.text or delta is None:
            return bool(self.text)
        if delta.content or delta.reasoning_content or delta.reasoning:
            return True
        return len(bytes(delta.tool_calls)) > len("null")


class Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None


class Event(msgspec.Struct):
    """What is read of an event of a stream; all else in it is passed over."""

    choices: list[Choice] = []
    usage: Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


decode = msgspec.json.Decoder(Event).decode


@dataclass(eq=False)
class Answer:
    """What came back for one request. Times are seconds from the start of its run."""

    arrival: float = 0.0  # when it was due, which is when its clock starts
    sent: float = math.nan  # when the client got to it
    end: float = math.nan  # when the stream was over, or broke
    chunk_times: list[float] = field(default_factory=list)  # of the events with text
    finish_time: float | None = None  # of the event with the finish reason
    finish_reason: str | None = None
    usage: Usage | None = None
    failure: str | None = None  # what kind, in a few words; None: a whole answer
    message: str = ""  # what the server said of it
    done: bool = False  # data: [DONE] has come
    rest: bytes = b""  # the beginning of a line

    def feed(self, data: bytes, now: float) -> None:
        """Bytes of the stream as they came. Events that came together have one time."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now)

    def _event(self, payload: bytes, now: float) -> None:
        if payload == b"[DONE]":
            self.done = True
            return
        try:
            event = decode(payload)
        except (msgspec.DecodeError, ValueError) as error:
            return self.fail("unreadable event", str(error))
        for choice in event.choices:
            if choice.has_text:
                self.chunk_times.append(now)
            if choice.finish_reason is not None:
                self.finish_time, self.finish_reason = now, choice.finish_reason
        if event.usage is not None:
            self.usage = event.usage
        if bytes(event.error) not in (b"", b"null"):
            self.fail("error event", message_of(payload))

    def fail(self, kind: str, message: str = "") -> None:
        """Notes a failure; the first one stays."""
        if self.failure is None:
            self.failure, self.message = kind, " ".join(message.split())[:200]

    def close(self, now: float) -> None:
        """The stream is over: whether the answer is whole."""
        self.end = now
        if not self.done:
            self.fail("no [DONE]", "the stream ended without data: [DONE]")
        elif self.finish_reason not in WHOLE:
            self.fail(f"finish_reason {self.finish_reason or 'missing'}")
        elif not self.num_tokens:
            self.fail("no token", "the answer has no token")

    @property
    def is_counted(self) -> bool:
        """Whether the server said how many tokens there were."""
        return self.usage is not None and self.usage.completion_tokens is not None

    @property
    def num_tokens(self) -> int:
        """Output tokens, by the server's count; by the events with text where it gave none."""
        return self.usage.completion_tokens if self.is_counted else len(self.chunk_times)

    @property
    def seen_times(self) -> list[float]:
        """When something of the answer was seen. A last token without a text is seen as the end."""
        times = self.chunk_times
        if self.num_tokens > len(times) and self.finish_time is not None:
            return [*times, self.finish_time]
        return times

    @cached_property
    def latency(self) -> Latency | None:
        """Of a whole answer; None for a failure."""
        if self.failure is not None:
            return None
        return latency(self.arrival, token_times(self.seen_times, self.num_tokens))


def seconds_of(answers: Sequence[Answer]) -> float:
    """From the first arrival to the last token, of answers that are whole."""
    last = max(answer.arrival + answer.latency.e2e for answer in answers)
    return last - min(answer.arrival for answer in answers)


def token_times(seen: Sequence[float], num_tokens: int) -> list[float]:
    """A time for each of `num_tokens` tokens, from when pieces of their text were seen.

    The first piece is the first token and the last piece the last one. Piece j of m (from 0)
    ends with token floor(j (n - 1) / (m - 1)), and the tokens since the piece before it are
    spread evenly over the time since then. With a piece for each token this is exact.
    """
    if min(num_tokens, len(seen)) == 1:
        return [seen[0]] * num_tokens
    times, last = [seen[0]], 0
    for j, (_, now) in enumerate(pairwise(seen), start=1):
        place, before = j * (num_tokens - 1) // (len(seen) - 1), times[-1]
        for i in range(1, place - last + 1):
            times.append(before + (now - before) * i / (place - last))
        last = place
    return times


def message_of(body: bytes) -> str:
    """What an error says of itself: OpenAI's error.message, or the beginning of it all."""
    try:
        found = msgspec.json.decode(body)
        error = found.get("error", found.get("detail", found))
        return str(error.get("message", error) if isinstance(error, dict) else error)
    except (msgspec.DecodeError, AttributeError, ValueError):
        return body[:200].decode("utf-8", "replace")
