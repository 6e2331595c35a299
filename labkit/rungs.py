"""The ladder: every rung by name, made in one way, so that one program can run them all."""

import re
from collections.abc import Callable

from labkit import machine
from labkit.engine.policies import FCFS, POLICIES, make_policy
from labkit.engine.policies.preemption import PREEMPTIONS
from labkit.model import loading
from labkit.model.checkpoint import ModelError
from labkit.paced_device import PacedModel

BLOCK_SIZE = 16
DEFAULT_KV_MEMORY = 2**30  # bytes
RUNGS = ("naive", "static", "cached", "paged", "continuous", "preemptive")
DEFAULT_SWAP_MEMORY = 2**28  # bytes
ON_TRANSFORMERS = ("naive", "static")


def load_for(
    rung: str,
    model: str,
    dtype: str,
    device: str,
    with_tokenizer: bool = True,
    attention: str | None = None,
) -> loading.LoadedModel:
    """The model as `rung` runs it: the first two on `transformers`, the others on our decoder,
    with the `attention` of `load_decoder`."""
    if rung not in RUNGS:
        raise ValueError(f"rung {rung!r} is not known; accepted are {', '.join(RUNGS)}")
    if rung not in ON_TRANSFORMERS:
        return loading.load_decoder(
            model, dtype=dtype, device=device, with_tokenizer=with_tokenizer, attention=attention
        )
    if dtype == loading.INT8:
        raise ModelError(f"dtype 'int8' needs labkit's decoder; rung {rung!r} runs transformers")
    return loading.load(model, dtype=dtype, device=device)


def parse_bytes(amount: int | str) -> int:
    """Bytes from a number, or from text such as "512MB", "2GiB" (both powers of 1024)."""
    if isinstance(amount, int) and not isinstance(amount, bool):
        return amount
    text = str(amount).strip().upper()
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(?:([KMGT])I?)?B?", text)
    if not found:
        raise ValueError(f"{amount!r} is no amount of memory; write bytes, or '512MB' or '2GB'")
    return int(float(found[1]) * 1024 ** (" KMGT".index(found[2] or " ")))


def bytes_of_block(decoder, block_size: int) -> int:
    """What one block of the cache of `decoder` takes."""
    from labkit.model.kv_cache import bytes_per_block

    return bytes_per_block(decoder.config, block_size, decoder.dtype, decoder.device)


def blocks_in(memory: int | str, one: int, block_size: int, name: str = "kv_memory") -> int:
    """How many blocks of `one` bytes fit in `memory`. ValueError when not even one does."""
    count = parse_bytes(memory) // one
    if count < 1:
        raise ValueError(
            f"{name} {memory!r} is less than one block of {block_size} tokens, "
            f"{one:,} bytes; give more, or a smaller block_size"
        )
    return count


def blocks_of_cache(
    num_blocks: int | None, kv_memory: int | str | None, one: int, block_size: int, default: int
) -> int:
    """How many blocks of `one` bytes a cache gets; what fits in `default` bytes if neither is
    given. ValueError when both are."""
    if num_blocks is None:
        return blocks_in(default if kv_memory is None else kv_memory, one, block_size)
    if kv_memory is not None:
        raise ValueError(f"num_blocks {num_blocks} and kv_memory {kv_memory!r}: give one of them")
    return num_blocks


def memory_of(device) -> int | None:
    """Bytes that a device has in all; None where that is not known."""
    if str(device) == "cpu":
        return machine.memory()[0]
    import torch

    return torch.cuda.mem_get_info(device)[1]


def refuse_beyond_memory(
    num_blocks: int, block_size: int, one: int, device: str, there: int | None
) -> None:
    """ValueError when `device` could not hold such a cache in the bytes that are `there`."""
    needed = num_blocks * one
    if there is not None and needed > there:
        raise ValueError(
            f"{num_blocks} blocks of {block_size} tokens are {needed:,} bytes, and "
            f"{device!r} has {there:,}; give the cache fewer blocks"
        )


def longest_sequence(max_position: int, room: int, max_model_len: int | None) -> int:
    """How many tokens one request may have, prompt and output.

    The model has `max_position`, the cache `room` for one request. ValueError when
    `max_model_len` asks for more than either has, with both numbers.
    """
    limit = min(max_position, room)
    if max_model_len is None:
        return limit
    if max_model_len < 2:
        raise ValueError(f"max_model_len is {max_model_len}; 2 is the least, a token each way")
    if max_model_len > limit:
        raise ValueError(
            f"max_model_len is {max_model_len}, the model has positions for "
            f"{max_position} tokens and the KV cache room for {room}; "
            "lower it, or give the cache more blocks"
        )
    return max_model_len


def make(
    rung: str,
    loaded: loading.LoadedModel,
    *,
    num_blocks: int | None = None,
    kv_memory: int | str | None = None,
    block_size: int | None = None,
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    prefix_caching: bool | None = None,
    itl_target_ms: float | None = None,
    policy: str | FCFS | None = None,
    preemption: str | None = None,
    swap_memory: int | str | None = None,
    cuda_graphs: bool = False,
    seed: int = 0,
    clock: Callable[[], float] | None = None,
):
    """An engine of one rung: `add(request)`, `step() -> events`, `abort(id)`, `has_unfinished()`.

    The cache is `num_blocks` blocks, or what fits in `kv_memory` (1 GiB if neither is given).
    `max_num_seqs` is the batch size of the rungs with fixed batches. `itl_target_ms` bounds the
    tokens of a step by how long steps take. The last rung has a `policy` ("priority" if not told,
    "fcfs", "fair", "deadline", or one of your own), and a `preemption`: "recompute", "swap", or
    "auto", with `swap_memory` on the host (256 MiB). ValueError for an option that this rung
    doesn't have: nothing is accepted and ignored.
    """
    given = {
        "num_blocks": num_blocks, "block_size": block_size, "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs, "max_num_batched_tokens": max_num_batched_tokens,
        "kv_memory": kv_memory, "prefix_caching": prefix_caching,
        "cuda_graphs": cuda_graphs or None, "itl_target_ms": itl_target_ms, "policy": policy,
        "preemption": preemption, "swap_memory": swap_memory,
    }  # fmt: skip
    check_options(rung, given, seed)
    if isinstance(loaded.model, PacedModel):
        from labkit.paced import engine_for

        return engine_for(loaded.model, loaded.eos_token_ids, rung, given, seed=seed, clock=clock)
    block_size = block_size or BLOCK_SIZE
    timing = {} if clock is None else {"clock": clock}
    ends = loaded.eos_token_ids
    if rung == "naive":
        from labkit.engine.naive import NaiveEngine

        return NaiveEngine(loaded.model, ends, **timing)
    if rung == "static":
        from labkit.engine.static import StaticEngine

        return StaticEngine(loaded.model, ends, max_num_seqs or 4, seed=seed, **timing)
    decoder = loaded.model
    if rung == "cached":
        from labkit.engine.cached import CachedEngine

        max_position = decoder.config.max_position
        room = longest_sequence(max_position, max_position, max_model_len)
        room = room if max_model_len else min(room, 1024)
        return CachedEngine(decoder, ends, max_num_seqs or 4, room, seed=seed, **timing)
    one, device = bytes_of_block(decoder, block_size), str(decoder.device)
    num_blocks = blocks_of_cache(num_blocks, kv_memory, one, block_size, DEFAULT_KV_MEMORY)
    refuse_beyond_memory(num_blocks, block_size, one, device, memory_of(device))
    room = num_blocks * block_size
    longest = longest_sequence(decoder.config.max_position, room, max_model_len)
    if rung == "paged":
        from labkit.engine.paged import PagedEngine

        size = max_num_seqs or 16
        return PagedEngine(
            decoder, ends, num_blocks, block_size, size, longest, seed=seed, **timing
        )
    from labkit.engine.continuous import ContinuousEngine

    preemptive = {}
    if rung == "preemptive":
        preemptive = preemption_of(policy, preemption, swap_memory, one, block_size)
        on_host = preemptive.get("num_host_blocks", 0)
        refuse_beyond_memory(on_host, block_size, one, "cpu", memory_of("cpu"))
    if cuda_graphs:
        from labkit.model.cuda_graphs import GraphDecoder

        decoder = GraphDecoder(decoder)
    return ContinuousEngine(
        decoder,
        ends,
        num_blocks,
        block_size,
        prefix_caching=prefix_caching is not False,
        max_num_seqs=max_num_seqs or 64,
        max_num_batched_tokens=max_num_batched_tokens or 512,
        max_model_len=longest,
        itl_target=itl_target_ms and itl_target_ms / 1000,
        seed=seed,
        **preemptive,
        **timing,
    )


def preemption_of(policy, preemption, swap_memory, one: int, block_size: int) -> dict:
    """The options of the last rung as `ContinuousEngine` takes them; a block has `one` bytes.
    ValueError as `make`."""
    policy = "priority" if policy is None else policy
    policy = make_policy(policy) if isinstance(policy, str) else policy
    if not isinstance(policy, FCFS):
        raise ValueError(f"policy is {policy!r}; {', '.join(POLICIES)}, or a subclass of FCFS")
    preemption = "auto" if preemption is None else preemption
    if preemption not in PREEMPTIONS:
        raise ValueError(f"preemption {preemption!r} is not known; one of {', '.join(PREEMPTIONS)}")
    if preemption == "recompute":
        if swap_memory is not None:
            raise ValueError(f"swap_memory {swap_memory!r} is of no use with preemption recompute")
        return {"policy": policy, "preemption": preemption}
    memory = DEFAULT_SWAP_MEMORY if swap_memory is None else swap_memory
    blocks = blocks_in(memory, one, block_size, "swap_memory")
    return {"policy": policy, "preemption": preemption, "num_host_blocks": blocks}


def is_number(value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


OPTIONS = {
    "naive": set(),
    "static": {"max_num_seqs"},
    "cached": {"max_num_seqs", "max_model_len"},
    "paged": {"max_num_seqs", "max_model_len", "num_blocks", "block_size", "kv_memory"},
    "continuous": {
        "max_num_seqs", "max_model_len", "num_blocks", "block_size", "kv_memory",
        "max_num_batched_tokens", "prefix_caching", "cuda_graphs", "itl_target_ms",
    },
}  # fmt: skip
COUNTS = ("num_blocks", "block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens")


def check_options(rung: str, given: dict, seed) -> None:
    """ValueError for an option that a rung doesn't have, or that is not of its kind; None is
    one that isn't given."""
    refuse_unknown(rung, {name for name, value in given.items() if value is not None})
    for name in COUNTS:
        refuse_no_count(name, given[name])
    if type(seed) is not int:
        raise ValueError(f"seed is {seed!r}; a whole number is needed")
    for name in ("prefix_caching", "cuda_graphs"):
        if given[name] not in (None, True, False):
            raise ValueError(f"{name} is {given[name]!r}; True or False is needed")
    target = given["itl_target_ms"]
    if target is not None and not (is_number(target) and 0 < target < 1e9):
        raise ValueError(f"itl_target_ms is {target!r}; milliseconds above 0 are needed")


def refuse_no_count(name: str, value) -> None:
    """ValueError for a number of things that is none."""
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{name} is {value!r}; a whole number from 1 on is needed")


def refuse_unknown(rung: str, given: set[str]) -> None:
    """ValueError for an option that a rung doesn't have."""
    extra = sorted(given - OPTIONS[rung]) if rung in OPTIONS else []
    if extra:
        having = [name for name in RUNGS if extra[0] in OPTIONS.get(name, {extra[0]})]
        raise ValueError(f"rung {rung!r} has no {extra[0]}; it belongs to {', '.join(having)}")
