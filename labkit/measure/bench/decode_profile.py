"""Where the time of a decode step goes, by part of the decoder."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

PRODUCTS = ("qkv", "o", "gate_up", "down")
LOOPS = {"add_and_normalize": "norms", "gate": "gate"}
PARTS = (*PRODUCTS, "attention", *LOOPS.values(), "head", "rest")


@contextmanager
def parts_timed(decoder) -> Iterator[dict[str, float]]:
    """Gives the seconds of each part of a `CPUDecoder` while the block runs, and undoes it after.

    The layers run one by one; in float32 and int8 all of them are otherwise one call.
    "attention" has rotation and the writing of keys and values in it, "norms" the additions.
    What no part counts (embedding, preparation, in int8 the quantization of what attention gave)
    is left for "rest".
    """
    from labkit.model import cpu_decoder as module

    seconds = dict.fromkeys(PARTS, 0.0)

    def timed(function, part: str):
        def call(*args):
            begin = time.perf_counter()
            try:
                return function(*args)
            finally:
                seconds[part] += time.perf_counter() - begin

        return call

    loops, attention = module.loops, module.attention
    products_of_all, head = decoder.products, decoder.head
    products = [(getattr(layer, part), part) for layer in decoder.layers for part in PRODUCTS]
    try:
        counted = {name: timed(getattr(loops, name), part) for name, part in LOOPS.items()}
        module.loops = SimpleNamespace(**{**vars(loops), **counted})
        attend = timed(attention.turn_keep_attend, "attention")
        module.attention = SimpleNamespace(turn_keep_attend=attend)
        decoder.products, decoder.head = None, timed(head, "head")
        for product, part in products:
            product.rows = timed(product.rows, part)
        yield seconds
    finally:
        module.loops, module.attention = loops, attention
        decoder.products, decoder.head = products_of_all, head
        for product, _ in products:
            vars(product).pop("rows", None)


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
