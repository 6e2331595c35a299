"""What arrives, as lengths; and a request under way with what is measured of it."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from labkit.engine.blocks import hash_block, root_hash
from labkit.engine.request import Request
from labkit.measure.simulate.cost import ticks
from labkit.measure.workload import WorkloadRequest
from labkit.model.sampling_params import SamplingParams

CHARACTERS_PER_TOKEN = 4  # of English text, roughly, where no tokenizer is at hand
TEMPLATE_TOKENS = 28  # what a chat template puts around a message: SmolLM2's, roughly


class Arrival(NamedTuple):
    """One request before it is served. Its answer has exactly `num_output_tokens`."""

    time: float  # seconds from the start
    num_prompt_tokens: int
    num_output_tokens: int
    priority: int = 0
    tenant: str = ""
    deadline: float | None = None  # seconds from the start
    prompt_token_ids: tuple[int, ...] | None = None
    request_id: str = ""


@lru_cache(maxsize=8192)
def exactly(num_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True)


class Simulated(Request):
    """A request of lengths only. Times are ticks on the simulation's clock."""

    def __init__(self, number: int, arrival: Arrival, keep_ids: bool = False):
        ids = arrival.prompt_token_ids if keep_ids else None
        super().__init__(
            arrival.request_id or f"q{number}",
            range(arrival.num_prompt_tokens) if ids is None else list(ids),
            sampling=exactly(arrival.num_output_tokens),
            arrival=arrival.time,
            priority=arrival.priority,
            tenant=arrival.tenant,
            deadline=arrival.deadline,
        )
        self.number = number
        self.arrived = ticks(arrival.time)
        self.in_line = False  # waits now, for the first time or after a preemption
        self.started: int | None = None  # the beginning of its first step
        self.first: int | None = None  # its first token
        self.last: int | None = None  # its newest token
        self.longest_gap = 0  # between two of its tokens


def of_workload(workload: Iterable[WorkloadRequest]) -> list[Arrival]:
    """A workload file's requests in order of arrival; texts are counted by an estimate."""
    arrivals = [
        Arrival(
            asked.arrival_s,
            estimated_tokens(asked),
            asked.max_tokens,
            asked.priority,
            asked.tenant,
            None if asked.deadline_ms is None else asked.arrival_s + asked.deadline_ms / 1000,
            asked.prompt_token_ids,
            asked.id,
        )
        for asked in workload
    ]
    return sorted(arrivals, key=lambda arrival: arrival.time)


def estimated_tokens(asked: WorkloadRequest) -> int:
    if asked.prompt_token_ids is not None:
        return len(asked.prompt_token_ids)
    return TEMPLATE_TOKENS + -(-len(asked.prompt) // CHARACTERS_PER_TOKEN)


def at_rate(arrivals: list[Arrival], rate: float) -> Iterator[Arrival]:
    """The same arrivals in another time: `rate` requests/s on average, the pattern kept.

    Deadlines keep their distance from the arrival. ValueError when all arrive at one time.
    """
    span = arrivals[-1].time - arrivals[0].time
    if span == 0:
        raise ValueError(f"{len(arrivals)} requests arrive at one time, so they have no rate")
    factor = (len(arrivals) - 1) / rate / span
    for arrival in arrivals:
        time = arrival.time * factor
        deadline = arrival.deadline and arrival.deadline - arrival.time + time
        yield arrival._replace(time=time, deadline=deadline)


def full_hashes(request: Request, block_size: int) -> list[bytes]:
    """The hashes of a prompt's full blocks, as the block pool names them; computed once."""
    hashes = request.block_hashes
    for i in range(len(hashes), request.num_prompt_tokens // block_size):
        parent = hashes[-1] if hashes else root_hash(request.cache_salt)
        hashes.append(hash_block(parent, request.prompt_token_ids[i * block_size :][:block_size]))
    return hashes
