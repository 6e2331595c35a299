"""An engine on a real scheduler and a virtual clock: it says its prompt again and again.

No model, no torch: whose token it is can be read in the token, and every step takes one second.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.engine.request import Request, StepEvent
from labkit.engine.scheduler import Scheduler
from labkit.model.sampling_params import SamplingParams


@dataclass(frozen=True)
class Said:
    """What `Scheduler.commit` expects of a sampled token."""

    token_id: int
    logprobs: None = None
    error: None = None


class Bytes:
    """A tokenizer with a token for each byte."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids, skip_special_tokens=False, clean_up_tokenization_spaces=None):
        return bytes(token_ids).decode("utf-8", errors="replace")


class VirtualEngine:
    """What an `EngineLoop` needs of an `Engine`, and of its core. `now` are its seconds."""

    rung, vocab_size = "virtual", 256

    def __init__(self, scheduler: Scheduler):
        self.core, self.scheduler, self.now = self, scheduler, 0.0

    def clock(self) -> float:
        return self.now

    def add(
        self, prompt_token_ids: Sequence[int], params: SamplingParams, *, request_id: str, **fields
    ) -> list[Request]:
        """As `Engine.add`, for token ids below 256. Raises ValueError, and adds nothing then."""
        wrong = [token for token in prompt_token_ids if not 0 <= token < self.vocab_size]
        if wrong:
            raise ValueError(f"token {wrong[0]} is not below {self.vocab_size}")
        names = [f"{request_id}/{i}" if i else request_id for i in range(params.n)]
        requests = [
            Request(
                name, list(prompt_token_ids), sampling=params,
                copy_of=request_id if name != request_id else None, **fields,
            )
            for name in names
        ]  # fmt: skip
        for request in requests:
            request.prepare(frozenset(), 0)
            self.scheduler.add(request)
        return requests

    def has_unfinished(self) -> bool:
        return self.scheduler.has_unfinished()

    def step(self) -> list[StepEvent]:
        """Plans, lets a second pass, and commits."""
        plan = self.scheduler.plan(self.now)
        self.now += 1.0
        said = [Said(next_token(c.request)) for c in plan.chunks.values() if c.samples]
        return self.scheduler.commit(plan, said, self.now)

    def abort(self, request_id: str) -> bool:
        return self.scheduler.abort(request_id)


def next_token(request: Request) -> int:
    """The prompt once more, from its beginning."""
    prompt = request.prompt_token_ids
    return prompt[len(request.output_token_ids) % len(prompt)]
