"""Rung 1: one request at a time, and every token computed from scratch.

This is where most first servers begin, and the book's chapter 3 with them. It is correct, it
streams, and it does the work of all earlier tokens again for each new one.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable

import torch

from labkit.engine.request import Request, TokenEvent


def next_token(model, token_ids: list[int]) -> int:
    """The most likely token after `token_ids`, with nothing remembered from the step before.

    All `n = len(token_ids)` tokens go through the model in one forward pass with
    `use_cache=False`. Row `i` of the logits scores the token that follows position `i`, so the
    last row decides.

    Shapes: `input_ids` is `[1, n]` (int64, on `model.device`), and
    `model(input_ids=..., use_cache=False).logits` is `[1, n, vocab]`.
    No gradients are kept. Returns a plain `int`.
    """
    input_ids = torch.tensor([token_ids], device=model.device)
    with torch.inference_mode():
        logits = model(input_ids=input_ids, use_cache=False).logits
    return int(logits[0, -1].argmax())


class NaiveEngine:
    """Serves its requests one after the other, first come, first served, greedily.

    `model` is a `transformers` causal language model, `eos_token_ids` the tokens that end a
    text, and `clock` gives seconds. `line` holds the unfinished requests in order of arrival;
    the one at its head is being served, and every other one waits for it to finish.
    """

    def __init__(
        self,
        model,
        eos_token_ids: Iterable[int],
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.model = model
        self.eos_token_ids = frozenset(eos_token_ids)
        self.clock = clock
        self.line: deque[Request] = deque()

    def add(self, request: Request) -> None:
        """Puts a request at the end of the line. ValueError when its id is already in it."""
        if any(request.request_id == other.request_id for other in self.line):
            raise ValueError(
                f"request id {request.request_id!r} is already in line; "
                "ids are unique among unfinished requests, give this one another"
            )
        self.line.append(request)

    def has_unfinished(self) -> bool:
        """Whether a call of `step` would still produce a token."""
        return bool(self.line)

    def step(self) -> list[TokenEvent]:
        """Computes one token of the request at the head of the line.

        Asks `next_token` for the token after the request's prompt and output so far, appends
        it to `output_token_ids`, and returns it as the only `TokenEvent` of a list; `[]` when
        nobody is in line. The event's `time` is read from `clock` once the token exists.

        `finish_reason` becomes "stop" on an end-of-sequence token (unless the request says
        `ignore_eos`), else "length" once there are `max_tokens` output tokens. A finished
        request leaves the line, and the event carries the reason.
        """
        if not self.line:
            return []
        request = self.line[0]
        token_id = next_token(self.model, request.token_ids)
        request.output_token_ids.append(token_id)
        if token_id in self.eos_token_ids and not request.ignore_eos:
            request.finish_reason = "stop"
        elif len(request.output_token_ids) == request.max_tokens:
            request.finish_reason = "length"
        if request.finish_reason:
            self.line.popleft()
        return [TokenEvent(request.request_id, token_id, request.finish_reason, self.clock())]

    def abort(self, request_id: str) -> bool:
        """Takes a request out of the line. Says truthfully whether there was one to take."""
        for request in self.line:
            if request.request_id == request_id:
                request.finish_reason = "abort"
                self.line.remove(request)
                return True
        return False
