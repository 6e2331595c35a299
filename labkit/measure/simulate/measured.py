"""The cost model of this machine, from steps that a real engine makes here."""

import random
import time
from collections.abc import Callable
from dataclasses import replace

from labkit.engine.request import Request
from labkit.measure.simulate.cost import CostModel, Sample, work_of

OUTPUT_TOKENS = 6
DISTURBED = 0.15  # on an idle machine the median error is 5%
# (requests, prompt tokens of each): prompts alone, and batches at short and long context.
SHAPES = (
    (1, 16), (1, 500), (1, 128), (2, 250), (4, 16), (4, 120), (8, 16), (8, 250), (16, 16),
    (16, 60), (1, 250), (2, 16), (1, 900), (4, 500),
)  # fmt: skip


def measure(
    engine, vocab_size: int, seed: int = 0, tell: Callable[[str], None] = lambda text: None
) -> list[Sample]:
    """Steps of a `ContinuousEngine`, with what they computed and their seconds.

    `engine` has nothing to do, its cache room for 2,100 tokens, and no prefix caching. Shapes
    that its scheduler would refuse are passed over. SmolLM2-135M on two cores takes 15 s.
    """
    draw, samples = random.Random(seed), []
    run_shape(engine, 1, 16, vocab_size, draw)  # the first steps of all are slower
    for count, length in SHAPES:
        tell(f"{count} requests of {length} tokens")
        samples += run_shape(engine, count, length, vocab_size, draw)
    return samples


def run_shape(
    engine, count: int, length: int, vocab_size: int, draw: random.Random
) -> list[Sample]:
    scheduler, samples = engine.scheduler, []
    longest = scheduler.max_model_len
    if longest is not None and length + OUTPUT_TOKENS > longest:
        return []
    for number in range(count):
        ids = [draw.randrange(vocab_size) for _ in range(length)]
        engine.add(Request(f"cost-{number}", ids, OUTPUT_TOKENS, ignore_eos=True))
    while engine.has_unfinished():
        begin = time.perf_counter()
        plan = scheduler.plan(begin)
        sampled = engine.compute(plan)
        end = time.perf_counter()
        samples.append(Sample(*work_of(plan), end - begin))
        scheduler.commit(plan, sampled, end)
    return samples


def measured(model: str, dtype: str, tell: Callable[[str], None], seed: int = 0):
    """The cost model of `model` on this CPU, and how many blocks of 16 tokens 1 GiB holds."""
    from labkit import rungs

    return measured_on(rungs.load_for("continuous", model, dtype, "cpu"), dtype, tell, seed)


def measured_on(loaded, dtype: str, tell: Callable[[str], None], seed: int = 0):
    """The same for a model that is loaded already."""
    from labkit import rungs

    engine = rungs.make("continuous", loaded, prefix_caching=False)
    samples = measure(engine, loaded.model.config.vocab_size, seed, tell)
    cost = CostModel.fit(samples, per_swapped_block_s=copy_seconds(engine))
    error = cost.error(samples)
    about = (
        f"{loaded.name} in {dtype}, {len(samples)} steps on this machine, median error "
        f"{100 * error:.0f}%"
    )
    if error > DISTURBED:
        about += ": something disturbed them, close other programs and measure again"
    return replace(cost, about=about), engine.scheduler.pool.num_blocks


def copy_seconds(engine) -> float:
    """What copying a block to the host takes: here from memory to memory."""
    from labkit.model.kv_cache import KVCache

    decoder, cache = engine.runner.decoder, engine.runner.cache
    host = KVCache(decoder.config, 64, cache.block_size, decoder.dtype, "cpu")
    return cache.num_bytes / cache.num_blocks / cache.bandwidth_to(host, 64)
