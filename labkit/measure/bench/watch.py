"""Looks into a running engine: tokens, KV slots, seconds in functions. Changes no result."""

import time
from collections.abc import Callable
from contextlib import contextmanager


class Watched:
    """A decoder that counts what goes through it, and how full the blocks in use are.

    In the place of an engine's own decoder. `most_held` is the most KV slots (room for one
    token) held at once. `unused` sums the held slots without a token, `held` all held ones,
    over all steps. A row of the cached rung is held whether a request is in it or not. Running
    requests that a step leaves out are taken to have no unused slots.
    """

    def __init__(self, decoder, num_held_slots: Callable[[], int], fixed_rows: bool):
        self._decoder, self._num_held, self._fixed = decoder, num_held_slots, fixed_rows
        self.forget()

    def __getattr__(self, name: str):
        return getattr(self._decoder, name)

    def forget(self) -> None:
        """Counts from 0 again."""
        self.passes = self.tokens = self.most_held = self.unused = self.held = 0

    def __call__(self, batch, cache):
        self.passes += 1
        self.tokens += len(batch.token_ids)
        held, size = self._num_held(), batch.block_size
        if self._fixed:
            self.unused += held - sum(batch.context_lens)
        else:
            self.unused += sum(-length % size for length in batch.context_lens)
        self.held += held
        self.most_held = max(self.most_held, held)
        return self._decoder(batch, cache)


def watch(engine) -> Watched:
    """Puts a `Watched` decoder into an engine that has a KV cache."""
    cache = engine.runner.cache
    pool = getattr(engine, "pool", None)
    if hasattr(engine, "scheduler"):
        pool = engine.scheduler.pool

    def num_held() -> int:
        return (pool.num_used if pool else cache.num_blocks) * cache.block_size

    engine.runner.decoder = Watched(engine.runner.decoder, num_held, fixed_rows=pool is None)
    return engine.runner.decoder


def bytes_per_slot(engine) -> float:
    """What the keys and values of one token take in an engine's cache, over all layers."""
    cache = engine.runner.cache
    return cache.num_bytes / (cache.num_blocks * cache.block_size)


@contextmanager
def timed_calls(owner, *names: str):
    """Gives a dict with the seconds spent in functions of `owner` while the block runs, by name."""
    seconds = dict.fromkeys(names, 0.0)
    originals = {name: getattr(owner, name) for name in names}

    def timed(name: str):
        def call(*args, **options):
            begin = time.perf_counter()
            try:
                return originals[name](*args, **options)
            finally:
                seconds[name] += time.perf_counter() - begin

        return call

    for name in names:
        setattr(owner, name, timed(name))
    try:
        yield seconds
    finally:
        for name, original in originals.items():
            setattr(owner, name, original)
