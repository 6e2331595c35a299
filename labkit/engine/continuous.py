"""Rungs 5 and 6: who runs is decided anew in each step.

A request that ends makes room at once, one that arrives starts with the next step, and a long
prompt is computed in chunks beside those that generate: continuous batching (Yu et al., "Orca",
2022) over paged memory, with a budget of tokens.
"""

import time
from collections.abc import Callable, Iterable

from labkit.engine.blocks import BlockPool
from labkit.engine.plan import StepPlan
from labkit.engine.policies.preemption import PREEMPTIONS, Cheaper, Recompute, Swap
from labkit.engine.request import Request, StepEvent
from labkit.engine.runner import Runner
from labkit.engine.scheduler import Scheduler
from labkit.model.kv_cache import KVCache
from labkit.model.sampling import Sampled, sample


class ContinuousEngine:
    """The scheduler, the decoder and the sampler, one step after the other.

    `limits` are the scheduler's: `max_num_batched_tokens`, `max_num_seqs`, `max_model_len`,
    `policy`, `itl_target`. `clock` gives seconds; `seed` is where the random numbers of requests
    that bring no seed start.

    The sixth rung has a policy that preempts, and may have `num_host_blocks` of the host's memory
    for the blocks of preempted requests. `preemption` is "recompute", "swap" or "auto", which is
    the cheaper by what copying a block and computing a token take here.
    """

    def __init__(
        self,
        decoder,
        eos_token_ids: Iterable[int],
        num_blocks: int,
        block_size: int = 16,
        *,
        prefix_caching: bool = True,
        preemption: str = "recompute",
        num_host_blocks: int = 0,
        clock: Callable[[], float] = time.perf_counter,
        seed: int = 0,
        **limits,
    ):
        self.eos_token_ids = frozenset(eos_token_ids)
        self.clock, self.seed = clock, seed
        pool, host, host_cache = BlockPool(num_blocks, block_size, prefix_caching), None, None
        num_blocks += decoder.spare_blocks
        cache = KVCache(decoder.config, num_blocks, block_size, decoder.dtype, decoder.device)
        if preemption not in PREEMPTIONS or (preemption == "recompute") == (num_host_blocks > 0):
            known = f"{', '.join(PREEMPTIONS)}, the latter two with blocks on the host"
            raise ValueError(f"preemption is {preemption!r} with {num_host_blocks} blocks; {known}")
        how = Recompute()
        if preemption != "recompute":
            host = BlockPool(num_host_blocks, block_size, prefix_caching=False)
            host_cache = KVCache(decoder.config, num_host_blocks, block_size, decoder.dtype, "cpu")
            how = Swap()
        if preemption == "auto":
            per_token = cache.num_bytes / (num_blocks * block_size)
            how = Cheaper(per_token, cache.bandwidth_to(host_cache))
        self.scheduler = Scheduler(pool, preemption=how, host=host, **limits)
        self.runner = Runner(decoder, cache, host_cache)

    @property
    def unfinished(self) -> dict[str, Request]:
        return self.scheduler.known

    def add(self, request: Request) -> None:
        """Puts a request in line. Raises ValueError as `Scheduler.add` does."""
        request.prepare(self.eos_token_ids, self.seed)
        self.scheduler.add(request)
        self.seed += 1

    def has_unfinished(self) -> bool:
        return self.scheduler.has_unfinished()

    def step(self) -> list[StepEvent]:
        """One step: plan, compute, sample, commit. Returns an event for each new token.

        When the step can't be computed (memory, say), its requests end with that error; the
        others, and the engine, go on.
        """
        plan = self.scheduler.plan(self.clock())
        try:
            sampled = self.compute(plan)
        except (RuntimeError, MemoryError) as error:
            return self.scheduler.fail(plan, f"the step failed: {error}", self.clock())
        except BaseException:  # Ctrl-C in a notebook: what was planned is not done
            self.scheduler.fail(plan, "the step was interrupted", self.clock())
            raise
        return self.scheduler.commit(plan, sampled, self.clock())

    def compute(self, plan: StepPlan) -> list[Sampled]:
        """A token for each chunk that `samples`, in order."""
        chunks = plan.chunks.values()
        self.runner.copy(plan)
        if not chunks:
            return []
        logits = self.runner.run([(chunk.request, chunk.num_tokens) for chunk in chunks])
        return sample(logits, [chunk.request for chunk in chunks if chunk.samples])

    def abort(self, request_id: str) -> bool:
        """Ends a request in any state and frees its blocks; False when it had ended already."""
        return self.scheduler.abort(request_id)
