"""Where the time of a decode step goes, by part of the decoder."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

PRODUCTS = ("qkv", "o", "gate_up", "down")
PARTS = ("qkv", "attention", "o", "gate_up", "down", "norms", "head", "rest")


class Timed:
    """A callable that adds what it takes to `seconds[part]`; all else is as it was."""

    def __init__(self, inner, part: str, seconds: dict[str, float]):
        self.inner, self.part, self.seconds = inner, part, seconds

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def __call__(self, *args, **options):
        begin = time.perf_counter()
        try:
            return self.inner(*args, **options)
        finally:
            self.seconds[self.part] += time.perf_counter() - begin


@contextmanager
def parts_timed(decoder) -> Iterator[dict[str, float]]:
    """Gives the seconds of each part of `decoder` while the block runs, and undoes it after.

    "attention" has the preparation of a step in it, too. What no part counts (embedding,
    rotation, writing keys and values, the gate) is left for "rest".
    """
    from labkit.model import decoder as module

    seconds = dict.fromkeys(PARTS, 0.0)
    attention_for = module.attention_for

    def timed_attention_for(*args):
        prepared = Timed(attention_for, "attention", seconds)(*args)
        return Timed(prepared, "attention", seconds)

    originals = [(layer, name, getattr(layer, name)) for layer in decoder.layers
                 for name in PRODUCTS]  # fmt: skip
    originals.append((decoder, "head", decoder.head))
    for owner, name, product in originals:
        setattr(owner, name, Timed(product, name, seconds))
    decoder.norm_scale = Timed(decoder.norm_scale, "norms", seconds)
    module.attention_for = timed_attention_for
    try:
        yield seconds
    finally:
        module.attention_for = attention_for
        del decoder.norm_scale
        for owner, name, product in originals:
            setattr(owner, name, product)


def profile(decoder, batch, cache, steps: int = 10) -> list[dict]:
    """A row for each part: seconds a step (mean of `steps`) and share of the step."""
    decoder(batch, cache)
    with parts_timed(decoder) as seconds:
        begin = time.perf_counter()
        for _ in range(steps):
            decoder(batch, cache)
        total = time.perf_counter() - begin
    seconds["rest"] = total - sum(seconds.values())
    return [{"part": p, "seconds": s / steps, "share": s / total} for p, s in seconds.items()]
