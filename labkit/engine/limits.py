"""Which options a scheduler can't have, and which requests can't be served at all."""

from weakref import WeakSet

from labkit.engine.blocks import BlockPool
from labkit.engine.policies.fcfs import FCFS, check_above_0
from labkit.engine.request import Request

IN_USE: WeakSet[FCFS] = WeakSet()  # each policy holds the line of one scheduler


def check_options(counts: dict, itl_target, pool: BlockPool, host: BlockPool | None) -> None:
    """Raises ValueError with the name of what is none of its kind."""
    for name, value in counts.items():
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} is {value!r}; at least 1 is needed to make progress")
    if itl_target is not None:
        check_above_0("itl_target", itl_target)
    if host is not None and host.block_size != pool.block_size:
        sizes = f"{host.block_size} tokens, those of the pool {pool.block_size}"
        raise ValueError(f"the host's blocks have {sizes}; they must be equal")


def claim(policy: FCFS) -> None:
    """Raises ValueError for a policy that another scheduler has."""
    if policy in IN_USE:
        raise ValueError(f"this {type(policy).__name__} serves another scheduler; make a new one")
    IN_USE.add(policy)


def refuse_what_never_fits(request: Request, pool: BlockPool, max_model_len: int | None) -> None:
    """Raises ValueError when a request is longer than allowed, or than the pool at its least."""
    asked = request.num_prompt_tokens + request.max_tokens
    if max_model_len is not None and asked > max_model_len:
        raise ValueError(
            f"request {request.request_id!r}: {request.num_prompt_tokens} prompt tokens and "
            f"max_tokens {request.max_tokens} make {asked}, max_model_len is "
            f"{max_model_len}; shorten the prompt or ask for fewer tokens"
        )
    # The last output token is never fed back, so it needs no slot.
    needed = pool.blocks_for(request.least_tokens - 1)
    if needed > pool.num_blocks:
        raise ValueError(
            f"request {request.request_id!r} can never fit: {request.num_prompt_tokens} prompt "
            f"tokens and at least {request.least_tokens - request.num_prompt_tokens} more need "
            f"{needed} KV blocks of {pool.block_size} tokens, the pool has "
            f"{pool.num_blocks}; shorten it, or start the engine with more blocks"
        )


def too_large(request: Request, num_tokens: int, pool: BlockPool) -> str | None:
    """Why the first `num_tokens` of a request don't fit a pool that holds nothing else."""
    needed = pool.blocks_for(num_tokens)
    if needed <= pool.num_blocks:
        return None
    return (
        f"out of KV blocks after {len(request.output_token_ids)} output tokens: {num_tokens} "
        f"tokens need {needed} blocks of {pool.block_size}, the pool has "
        f"{pool.num_blocks}; start the engine with more, or ask for fewer tokens"
    )
