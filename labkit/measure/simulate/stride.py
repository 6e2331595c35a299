"""Many decode steps at once, where nothing can happen between them."""

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.engine.plan import Chunk, StepPlan
from labkit.engine.policies import FCFS, EarliestDeadline, Fair, Priority
from labkit.engine.policies.preemption import Cheaper
from labkit.engine.scheduler import Scheduler
from labkit.measure.simulate.cost import CostModel, seconds


@dataclass(slots=True)
class Stride:
    """`num_steps` steps that compute one token for each of `num_running` requests. The first of
    them reads the keys and values of `context` tokens."""

    num_steps: int
    num_running: int
    context: int


class LastStep(StepPlan):
    """The last step of a stride: its chunks are only those of requests that end with it, but it
    computed a token for all that run."""

    def __init__(self, time: float, num_tokens: int):
        super().__init__(0, time)
        self._num_tokens = num_tokens

    @property
    def num_tokens(self) -> int:
        return self._num_tokens


def is_steady(scheduler: Scheduler, plan: StepPlan, num_samples: int) -> bool:
    """Whether a plan only generates: `num_samples`, a token for each running request, and
    nothing besides; and whoever waits was kept out by want of room."""
    besides = plan.preempted or plan.failed or plan.swap_out or plan.swap_in or plan.block_copies
    only = len(plan.chunks) == len(scheduler.running) == num_samples == plan.num_tokens
    return only and not besides and (plan.budget > 0 or not len(scheduler.policy))


def find(scheduler: Scheduler, cost: CostModel, began: int, planned: bool) -> Stride | None:
    """How many steps from `began` on (ticks) do the same, while nobody arrives.

    All running requests generate, and nobody could get in as the last plan was made; `planned`
    is whether that is the plan of the first of these steps. Until a request ends, that stays so:
    the number of running ones doesn't change, and ever fewer blocks are free. None when the
    first step may be another one.
    """
    running = scheduler.running.values()
    computed = [request.num_computed_tokens for request in running]
    most = min(request.max_tokens - len(request.output_token_ids) for request in running)
    if not line_is_still(scheduler):
        most = 1 if planned else 0
    stride = Stride(most, len(computed), sum(computed) + len(computed))
    held = sum(len(request.block_table) for request in running)
    while stride.num_steps and not has_blocks(scheduler, computed, held, stride.num_steps):
        stride.num_steps //= 2  # any number that fits will do: another stride follows
    if planned:
        stride.num_steps = max(stride.num_steps, 1)  # its blocks are taken already
    stop_at_deadline(stride, scheduler, cost, began)
    return stride if stride.num_steps else None


def has_blocks(scheduler: Scheduler, computed: Sequence[int], held: int, num_steps: int) -> bool:
    """Whether all running requests can have the blocks for `num_steps` more tokens each."""
    pool = scheduler.pool
    if len(computed) * (num_steps // pool.block_size + 1) <= pool.num_free:
        return True
    return sum(map(pool.blocks_for, (n + num_steps for n in computed))) - held <= pool.num_free


def stop_at_deadline(stride: Stride, scheduler: Scheduler, cost: CostModel, began: int) -> None:
    """The step that begins after the next deadline is planned anew."""
    if not scheduler.deadlines:
        return
    deadline, most = scheduler.deadlines[0][0], stride.num_steps
    if seconds(began) > deadline:
        stride.num_steps = 0
        return
    low, high = 1, most
    while low < high:  # the fewest steps that end after the deadline
        middle = (low + high) // 2
        end = began + cost.stride(middle, stride.num_running, stride.context)
        low, high = (low, middle) if seconds(end) > deadline else (middle + 1, high)
    stride.num_steps = min(low, most)


def line_is_still(scheduler: Scheduler) -> bool:
    """Whether the one who waits first is the same in the next steps and can't get in, given
    that it could not in this one, that nobody arrives and nobody ends."""
    policy = scheduler.policy
    if not len(policy):
        return True
    if type(policy) is EarliestDeadline:
        return not scheduler.deadlines  # a deadline that can't be met any more is refused
    if type(policy) is Fair:  # the next in line changes with what is charged
        full = len(scheduler.running) >= scheduler.max_num_seqs
        return full or len(policy.lines) == 1
    return type(policy) in (FCFS, Priority)


def learns_pace(scheduler: Scheduler) -> bool:
    """Whether a decision depends on how long the steps before took."""
    judges = type(scheduler.policy) not in (FCFS, Fair, Priority)
    return judges or isinstance(scheduler.preemption, Cheaper) or bool(scheduler.itl_target)


def take(scheduler: Scheduler, num_steps: int) -> list[Chunk]:
    """Books `num_steps` tokens for each running request, all but the last one for those that
    end; gives these a chunk for it. The same as so many rounds of `plan` and `commit`."""
    pool, charge, last = scheduler.pool, scheduler.policy.charge, []
    for request in scheduler.running.values():
        ends = request.max_tokens - len(request.output_token_ids) == num_steps
        more = num_steps - ends
        missing = pool.blocks_for(request.num_computed_tokens + num_steps)
        missing -= len(request.block_table)
        if missing > 0:
            request.block_table += pool.allocate(missing)
        request.num_computed_tokens += more
        request.output_token_ids += [0] * more
        if more:
            charge(request, 0, more)
        if ends:
            last.append(Chunk(request, request.num_computed_tokens, 1))
    return last
