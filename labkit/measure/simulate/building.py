"""The scheduler of a simulated replica out of its settings, for `simulate` and the capstone."""

from labkit.engine.blocks import BlockPool
from labkit.engine.policies import make_policy
from labkit.engine.policies.preemption import Cheaper, Recompute, Swap
from labkit.engine.scheduler import Scheduler
from labkit.measure.simulate.cost import CostModel
from labkit.measure.simulate.pool import LeanPool


def make_scheduler(
    cost: CostModel, num_blocks: int, max_num_batched_tokens: int, max_num_seqs: int,
    policy: str = "fcfs", preemption: str = "recompute", host_blocks: int | None = None,
    block_size: int = 16, prefix_caching: bool = False, itl_target: float | None = None,
) -> Scheduler:  # fmt: skip
    """A real scheduler over a pool of `num_blocks`; as many on the host, unless told, to swap to.

    ValueError for a policy, a count or a target that there can't be.
    """
    pool = (BlockPool if prefix_caching else LeanPool)(num_blocks, block_size)
    how, host = Recompute(), None
    if preemption != "recompute":
        host = LeanPool(host_blocks or num_blocks, block_size)
        how = Swap()
    if preemption == "auto":
        how = Cheaper(cost.per_swapped_block_s / block_size, 1.0)  # in seconds instead of bytes
    return Scheduler(
        pool, max_num_batched_tokens, max_num_seqs,
        policy=make_policy(policy), preemption=how, host=host, itl_target=itl_target,
    )  # fmt: skip
