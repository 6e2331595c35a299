"""The paced device: a GPU that isn't there. It waits as long as a step would take on one.

Scheduler, blocks, policies and everything around them are real; no weights, no torch, no memory
for keys and values. Step times are modelled from a card's data sheet, or were recorded on a
device; the tokens are made up. Every figure got with it carries the engine's `label`.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from labkit import rungs
from labkit.engine.blocks import BlockPool
from labkit.engine.plan import StepPlan
from labkit.engine.policies.preemption import Cheaper, Recompute, Swap
from labkit.engine.request import Request, StepEvent
from labkit.engine.scheduler import Scheduler
from labkit.measure.simulate.cost import CostError, seconds, work_of
from labkit.measure.simulate.replica import MadeUp
from labkit.model.config import DecoderConfig
from labkit.model.facts import read_facts
from labkit.model.loading import LoadedModel
from labkit.model.sampling_params import SamplingParams, uniform
from labkit.paced_device import Alarm, PacedModel, paced_model

RUNGS = ("continuous", "preemptive")
MOST_BLOCKS = 250_000  # unless more are asked for: 4 million tokens; a card has room for more
MAX_NUM_SEQS = 256
MAX_NUM_BATCHED_TOKENS = 2048
NEEDS_LOGITS = (
    "logprobs", "logit_bias", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty",
)  # fmt: skip
PLAIN = SamplingParams()


def load(model: str, device: str, dtype: str | None = None) -> LoadedModel:
    """A model by name or path on a paced device, for `rungs.make` and `library.Engine`.

    `device` is a card ("H100") or a JSON file as `simulate --measure --json` writes it under
    "cost". Weights are not read, and a folder need not have any; there is no tokenizer. Raises
    ModelError, and ValueError for an unknown card or dtype.
    """
    facts = read_facts(model)
    paced = paced_model(device, facts.config, facts.eos_token_ids, dtype, facts.words or None)
    return LoadedModel(model, facts.path, paced, None, facts.eos_token_ids)


def make_paced(
    device: str,
    config: DecoderConfig | Mapping,
    eos_token_ids: Iterable[int],
    *,
    rung: str = "continuous",
    dtype: str | None = None,
    token_ids: Sequence[int] | None = None,
    seed: int = 0,
    clock: Callable[[], float] | None = None,
    sleep: Callable[[float], None] = time.sleep,
    **options,
) -> "PacedEngine":
    """`paced_model`, and an engine for it. `options` are those of `rungs.make`."""
    eos_token_ids = frozenset(eos_token_ids)
    model = paced_model(device, config, eos_token_ids, dtype, token_ids)
    known = rungs.OPTIONS["continuous"] | {"policy", "preemption", "swap_memory"}
    for name in options.keys() - known:
        raise ValueError(f"there is no option {name}; there are {', '.join(sorted(known))}")
    given = {**dict.fromkeys(known), **options}
    given["cuda_graphs"] = given["cuda_graphs"] or None
    return engine_for(model, eos_token_ids, rung, given, seed=seed, clock=clock, sleep=sleep)


def engine_for(
    model: PacedModel,
    eos_token_ids: Iterable[int],
    rung: str,
    given: Mapping,
    *,
    seed: int = 0,
    clock: Callable[[], float] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> "PacedEngine":
    """An engine with the options `given`, all of `rungs.make`, None where it has to choose.

    The cache is what the card holds beside the weights, up to MOST_BLOCKS; with a cost file, which
    knows no memory, 1 GiB as on the real rungs. ValueError as `rungs.make`.
    """
    if rung not in RUNGS:
        raise ValueError(f"rung {rung!r} has no paced device; {' and '.join(RUNGS)} have one")
    rungs.check_options(rung, given, seed)
    if given["cuda_graphs"]:
        raise ValueError("cuda_graphs is True, and a paced device launches nothing; leave it out")
    size = given["block_size"] or rungs.BLOCK_SIZE
    one, room = model.kv_bytes_per_token * size, model.room(size)
    default = rungs.DEFAULT_KV_MEMORY if room is None else min(room, MOST_BLOCKS * one)
    num_blocks = rungs.blocks_of_cache(
        given["num_blocks"], given["kv_memory"], one, size, default
    )
    rungs.refuse_beyond_memory(num_blocks, size, one, f"{model.device} beside the weights", room)
    longest = rungs.longest_sequence(
        model.config.max_position, num_blocks * size, given["max_model_len"]
    )
    preemptive = {}
    if rung == "preemptive":
        asked = (given["policy"], given["preemption"], given["swap_memory"])
        preemptive = rungs.preemption_of(*asked, one, size)
    return PacedEngine(
        model,
        eos_token_ids,
        num_blocks,
        size,
        prefix_caching=given["prefix_caching"] is not False,
        max_num_seqs=given["max_num_seqs"] or MAX_NUM_SEQS,
        max_num_batched_tokens=given["max_num_batched_tokens"] or MAX_NUM_BATCHED_TOKENS,
        max_model_len=longest,
        itl_target=given["itl_target_ms"] and given["itl_target_ms"] / 1000,
        seed=seed,
        clock=clock or time.perf_counter,
        sleep=sleep,
        **preemptive,
    )


class PacedEngine:
    """As `ContinuousEngine`, on a paced device. `device_busy_s` adds up what its steps take.

    A step of the device begins when its plan is made and lasts as long as the cost model says; so
    it stands still while the scheduler works, as a GPU does under an engine without asynchronous
    scheduling. An answer is drawn from the model's `token_ids` by the request's seed; a greedy one
    always from seed 0. It never ends by itself unless one of these tokens ends it. `temperature`,
    `top_p` and `top_k` change nothing else; what needs logits is refused.
    """

    def __init__(
        self,
        model: PacedModel,
        eos_token_ids: Iterable[int],
        num_blocks: int,
        block_size: int = 16,
        *,
        prefix_caching: bool = True,
        preemption: str = "recompute",
        num_host_blocks: int = 0,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
        seed: int = 0,
        **limits,
    ):
        self.eos_token_ids = frozenset(eos_token_ids)
        self.model, self.clock, self.seed = model, clock, seed
        self.label, self.about, self.cost = model.label, model.about, model.cost(block_size)
        self.device_busy_s = 0.0
        self.alarm = Alarm(clock, sleep)
        host, how = None, Recompute()
        if preemption != "recompute":
            per_token = self.cost.per_swapped_block_s / block_size
            if not per_token:
                raise CostError(
                    f"per_swapped_block_s is 0, so preemption {preemption!r} would cost nothing; "
                    "give it in the cost file, or choose recompute"
                )
            host = BlockPool(num_host_blocks, block_size, prefix_caching=False)
            how = Swap() if preemption == "swap" else Cheaper(per_token, 1.0)  # seconds, not bytes
        pool = BlockPool(num_blocks, block_size, prefix_caching)
        self.scheduler = Scheduler(pool, preemption=how, host=host, **limits)

    @property
    def unfinished(self) -> dict[str, Request]:
        return self.scheduler.known

    def add(self, request: Request) -> None:
        """Puts a request in line. ValueError as `Scheduler.add`, and for what needs logits."""
        for name in NEEDS_LOGITS:
            value = getattr(request.sampling, name)
            if value != getattr(PLAIN, name):
                raise ValueError(f"{name} is {value!r}, and a paced device has no logits; leave "
                                 "it out, or serve the model on a real device")  # fmt: skip
        request.prepare(self.eos_token_ids, self.seed)
        self.scheduler.add(request)
        self.seed += 1

    def has_unfinished(self) -> bool:
        return self.scheduler.has_unfinished()

    def step(self) -> list[StepEvent]:
        """One step: plan, wait, commit. Returns an event for each new token."""
        plan = self.scheduler.plan(self.clock())
        try:
            sampled = self.compute(plan)
        except BaseException:  # Ctrl-C in a notebook: what was planned is not done
            self.scheduler.fail(plan, "the step was interrupted", self.clock())
            raise
        return self.scheduler.commit(plan, sampled, self.clock())

    def compute(self, plan: StepPlan) -> list[MadeUp]:
        """A token for each chunk that `samples`, in order, when the device is done."""
        swapped = len(plan.swap_out) + len(plan.swap_in)
        if not (plan.chunks or swapped):
            return []
        begin, duration = self.clock(), seconds(self.cost.step(*work_of(plan), swapped))
        sampled = [self.made_up(c.request) for c in plan.chunks.values() if c.samples]
        self.alarm.sleep_until(begin + duration)
        self.device_busy_s += duration
        return sampled

    def made_up(self, request: Request) -> MadeUp:
        seed = request.seed if request.sampling.temperature > 0 else 0
        drawn = uniform(seed, len(request.output_token_ids))
        return MadeUp(self.model.token_ids[int(drawn * len(self.model.token_ids))])

    def abort(self, request_id: str) -> bool:
        """Ends a request in any state and frees its blocks; False when it had ended already."""
        return self.scheduler.abort(request_id)
