"""Runs one request and writes down what a client would have seen, and when.

For the experiments of notebook 01: delivery with and without streaming, the time of a token
against its position, and tokens counted as they go through a model.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from labkit.engine.request import Request


@dataclass
class Delivery:
    """One request as its client saw it. Times are seconds on one clock."""

    arrival: float
    token_times: list[float] = field(default_factory=list)  # when each token existed
    pieces: list[tuple[float, str]] = field(default_factory=list)  # (when, text) as sent

    @property
    def text(self) -> str:
        return "".join(piece for _, piece in self.pieces)

    @property
    def first_text(self) -> float:
        """Seconds from arrival until the client has any text to read."""
        return self.pieces[0][0] - self.arrival

    @property
    def last_text(self) -> float:
        """Seconds from arrival until the client has all of it: what E2E is to the user."""
        return self.pieces[-1][0] - self.arrival


def deliver(
    engine,
    detokenizer,
    request: Request,
    *,
    show: Callable[[str], None] = lambda piece: None,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[Delivery, Delivery]:
    """Runs `request` to its end for two clients: one is sent each piece of text, one all at last.

    Both watch the same run, so nothing but the sending differs. `show` receives each piece as
    it is sent to the first. `engine` has `add`, `step` and `has_unfinished` and is idle;
    `detokenizer` is a fresh `Detokenizer`. Returns (streamed, sent at the end).
    """
    request.arrival = clock()
    streamed, at_the_end = Delivery(request.arrival), Delivery(request.arrival)

    def send(client: Delivery, piece: str) -> None:
        if piece:
            client.pieces.append((clock(), piece))

    engine.add(request)
    while engine.has_unfinished():
        for event in engine.step():
            for client in (streamed, at_the_end):
                client.token_times.append(event.time)
            piece = detokenizer.push(event.token_id)
            send(streamed, piece)
            show(piece)
    rest = detokenizer.flush()
    send(streamed, rest)
    show(rest)
    send(at_the_end, streamed.text)
    return streamed, at_the_end


def seconds_by_position(
    next_token: Callable, model, token_ids: list[int], positions: list[int], repeats: int = 3
) -> list[float]:
    """Seconds that `next_token` takes on the first n of `token_ids`, for each n of `positions`.

    The fastest of `repeats` runs, since noise only ever slows one down. ValueError when there
    are too few tokens for a position.
    """
    if max(positions) > len(token_ids):
        raise ValueError(f"position {max(positions)} needs as many tokens, not {len(token_ids)}")
    next_token(model, token_ids[: positions[0]])
    fastest = []
    for n in positions:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            next_token(model, token_ids[:n])
            times.append(time.perf_counter() - start)
        fastest.append(min(times))
    return fastest


@dataclass
class Counted:
    """How many tokens went through a model, in how many forward passes."""

    passes: int = 0
    tokens: int = 0


@contextlib.contextmanager
def count_forwards(model) -> Iterator[Counted]:
    """Counts what goes through a `transformers` model while the `with` block runs.

    A hook on the token embedding sees `[batch, tokens]` of every forward pass.
    """
    counted = Counted()

    def see(module, inputs):
        counted.passes += 1
        counted.tokens += inputs[0].numel()

    hook = model.get_input_embeddings().register_forward_pre_hook(see)
    try:
        yield counted
    finally:
        hook.remove()


def generate(model, prompt_token_ids: list[int], num_tokens: int, use_cache: bool) -> list[int]:
    """Exactly `num_tokens` greedy tokens by `transformers`' own loop, with a KV cache or without.

    The outside source that labkit's engines are held against.
    """
    import torch

    input_ids = torch.tensor([prompt_token_ids], device=model.device)
    with torch.inference_mode():
        output = model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            max_new_tokens=num_tokens,
            do_sample=False,
            use_cache=use_cache,
            eos_token_id=None,  # go on after an end-of-sequence token
        )
    return output[0, len(prompt_token_ids) :].tolist()
