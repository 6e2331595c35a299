"""What it costs to come back after a preemption: tokens computed again, or bytes copied."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.engine.request import Request
from labkit.measure.simulate.cards import CARDS


@dataclass(frozen=True)
class WayBack:
    """Seconds until a request of `num_tokens` computed tokens has its next one, alone.

    `recompute_s` is one step over all of them, `swap_s` the copy to the host, the copy back and
    a step of one token.
    """

    num_tokens: int
    recompute_s: float
    swap_s: float


def ways_back(engine, lengths: Sequence[int], repeats: int = 2) -> list[WayBack]:
    """Measured on an engine with blocks on the host; the fastest of `repeats`."""
    runner, pool = engine.runner, engine.scheduler.pool
    found = []
    for num_tokens in lengths:
        count = pool.blocks_for(num_tokens)
        pairs = [(block, block) for block in range(count)]

        def there_and_back(pairs=pairs):
            runner.cache.copy_to(runner.host_cache, pairs)
            runner.host_cache.copy_to(runner.cache, pairs)
            return float(runner.cache.data[0, 0].sum())  # a value read back: it has arrived

        copies = fastest(there_and_back, repeats)
        steps = [step_over(engine, num_tokens) for _ in range(repeats)]
        again, single = (min(seconds) for seconds in zip(*steps, strict=True))
        found.append(WayBack(num_tokens, again, copies + single))
    return found


def fastest(action: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def step_over(engine, num_tokens: int) -> tuple[float, float]:
    """Seconds of a step over a prompt of so many tokens, and of the next one, over one token."""
    engine.add(Request("step", [7] * num_tokens, max_tokens=2, ignore_eos=True))
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        engine.step()
        seconds.append(time.perf_counter() - begin)
    return seconds[0], seconds[1]


@dataclass(frozen=True)
class PerToken:
    """Microseconds for each computed token of a victim, at the least."""

    where: str
    recompute_us: float
    swap_us: float


def on_cards(
    num_params: float = 8e9, kv_bytes_per_token: float = 131_072, names=("L4", "H100", "B200")
) -> list[PerToken]:
    """Modelled, from the makers' figures: 2 FLOP for each parameter; the bytes there and back."""
    return [
        PerToken(
            name,
            1e6 * 2 * num_params / CARDS[name].flops,
            1e6 * 2 * kv_bytes_per_token / CARDS[name].host_bandwidth,
        )
        for name in names
    ]
