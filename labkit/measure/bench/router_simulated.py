"""The workload of `bench router` on many simulated replicas, under each policy."""

from labkit.engine.blocks import BlockPool
from labkit.engine.policies import make_policy
from labkit.engine.policies.preemption import Recompute
from labkit.engine.scheduler import Scheduler
from labkit.fleet.routing import ROUTERS, PrefixAware, Router
from labkit.measure.bench.drive import percentile
from labkit.measure.bench.router_workload import BLOCK_SIZE, MAX_NUM_SEQS, Shape, arrivals, asked
from labkit.measure.simulate import cards, options
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.records import Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.report import union
from labkit.measure.simulate.requests import Simulated, full_hashes
from labkit.measure.simulate.watch import Watch

CARD = "H100"
LONGER = 8  # times the tokens: a card computes short prompts as fast as none
STEP_TOKENS = 2048  # of a step


class Counted(Records):
    """Counts what was found in the prefix caches, too."""

    num_cached_tokens = 0

    def ended(self, request: Simulated) -> None:
        super().ended(request)
        self.num_cached_tokens += request.num_cached_tokens


def row(policy: str, replicas: int, live: Shape, live_replicas: int, load: float, seed: int):
    """One policy: hit rate and TTFT. As much for each replica as on the live ones."""
    shape = live.longer(LONGER).wider(replicas // live_replicas)
    size = {name: options.LLAMA_8B[of] for name, of in SIZES.items()}
    cost = cards.for_card(CARD, **size, block_size=BLOCK_SIZE)
    rate = load * replicas / (shape.prompt * cost.per_prompt_token_s)
    fleet = Fleet(
        [Replica(scheduler := make(shape, replicas), cost, Watch(scheduler.pool, cost))
         for _ in range(replicas)],
        router(policy, seed), records := Counted(), keep_ids=True,
    )  # fmt: skip
    fleet.run(arrivals(asked(shape, rate, seed)))
    ttft = union(records.groups.values()).ttft
    return {
        "where": f"simulated, {replicas}", "policy": policy, "requests": records.num_ended,
        "failed": records.num_ended - len(ttft), "rate": rate,
        "hit_rate": records.num_cached_tokens / records.num_prompt_tokens,
        "ttft_p50_s": percentile(ttft, 50), "ttft_p99_s": percentile(ttft, 99),
    }  # fmt: skip


SIZES = {"num_params": "model_params", "kv_bytes_per_token": "kv_bytes_per_token",
         "bytes_per_param": "bytes_per_param"}  # fmt: skip


def make(shape: Shape, replicas: int) -> Scheduler:
    pool = BlockPool(shape.blocks(replicas), BLOCK_SIZE)
    return Scheduler(
        pool, STEP_TOKENS, MAX_NUM_SEQS, policy=make_policy("fcfs"), preemption=Recompute()
    )


def router(policy: str, seed: int) -> Router:
    if policy == "prefix":
        return PrefixAware(seed, lambda request: full_hashes(request, BLOCK_SIZE))
    return ROUTERS[policy](seed)
