"""What the messages of a step cost: bytes, and the seconds to write and to read them."""

import secrets
import time
from statistics import median

from labkit.serving import messages
from labkit.serving.messages import Step, Token

REPEATS = 30


def step_of(batch: int) -> Step:
    """The message of a step that brought a token to each of `batch` requests."""
    now = time.monotonic()
    names = [f"cmpl-{secrets.token_hex(12)}" for _ in range(batch)]  # as long as the server's
    tokens = [Token(name, 20_000 + i, None, now) for i, name in enumerate(names)]
    return Step(now, now, 0.005, tokens, [], [], batch, 0, 4 * batch)


def costs(batch: int) -> dict:
    """Per token, for steps of so many."""
    step = step_of(batch)
    data = messages.encode(step)
    loops = max(2000 // batch, 20)
    return {
        "bytes_per_token": len(data) / batch,
        "encode_s_per_token": seconds_of(messages.encode, step, loops) / batch,
        "decode_s_per_token": seconds_of(messages.decode_from_engine, data, loops) / batch,
    }


def seconds_of(call, argument, loops: int) -> float:
    """Of one call: the median over `REPEATS` loops."""

    def one_loop() -> float:
        begin = time.perf_counter()
        for _ in range(loops):
            call(argument)
        return (time.perf_counter() - begin) / loops

    return median(one_loop() for _ in range(REPEATS))
