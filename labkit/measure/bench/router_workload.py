"""What `bench router` sends: prompts in groups, each with a beginning of its own. No I/O."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from labkit.measure.bench.sending import HIGH, LOW, gamma_arrivals
from labkit.measure.simulate.requests import Arrival
from labkit.measure.workload import WorkloadRequest

BLOCK_SIZE = 16
MAX_NUM_SEQS = 4  # that run at once on a replica


@dataclass(frozen=True)
class Shape:
    """`groups` beginnings of `prefix` tokens; each request has one of them, then tokens of its
    own. A replica's cache holds about half of the beginnings."""

    groups: int = 24
    prefix: int = 256
    suffix: int = 16
    output: int = 8
    requests: int = 192

    def longer(self, factor: int) -> "Shape":
        """Prompts of so many times the tokens, for a device that is so much faster with them."""
        return replace(self, prefix=factor * self.prefix, suffix=factor * self.suffix)

    def wider(self, factor: int) -> "Shape":
        """For so many times the replicas: as much for each of them."""
        return replace(self, groups=factor * self.groups, requests=factor * self.requests)

    def blocks(self, replicas: int) -> int:
        """Of one replica: its share of the beginnings, and room for those that run."""
        held = -(-self.groups // replicas) * (self.prefix // BLOCK_SIZE)
        return held + MAX_NUM_SEQS * (self.tokens // BLOCK_SIZE + 1)

    @property
    def prompt(self) -> int:
        return self.prefix + self.suffix

    @property
    def tokens(self) -> int:
        return self.prompt + self.output

    @property
    def most_cached(self) -> float:
        """The hit rate if each beginning were computed once."""
        cached = (self.requests - self.groups) * (self.prefix // BLOCK_SIZE * BLOCK_SIZE)
        return max(cached, 0) / (self.requests * self.prompt)


def asked(shape: Shape, rate: float, seed: int) -> list[WorkloadRequest]:
    """Poisson arrivals at `rate`/s; groups are drawn evenly. A group is a session: its tenant."""
    draw = random.Random(f"router {seed}")
    starts = [tokens(draw, shape.prefix) for _ in range(shape.groups)]
    found = []
    for number, time in enumerate(gamma_arrivals(shape.requests, rate, 1.0, seed)):
        group = draw.randrange(shape.groups)
        ids = (*starts[group], *tokens(draw, shape.suffix))
        found.append(
            WorkloadRequest(
                f"q{number}", shape.output, prompt_token_ids=ids, ignore_eos=True, arrival_s=time,
                tenant=f"group {group}",
            )
        )  # fmt: skip
    return found


def tokens(draw: random.Random, count: int) -> tuple[int, ...]:
    return tuple(draw.choices(range(LOW, HIGH), k=count))


def arrivals(requests: Sequence[WorkloadRequest]) -> list[Arrival]:
    """The same for the simulator."""
    return [
        Arrival(
            one.arrival_s, len(one.prompt_token_ids), one.max_tokens, tenant=one.tenant,
            prompt_token_ids=one.prompt_token_ids, request_id=one.id,
        )
        for one in requests
    ]  # fmt: skip
