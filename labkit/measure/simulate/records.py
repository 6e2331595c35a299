"""What is kept of a simulation: a row of numbers for each request, never the request."""

import math
from array import array
from dataclasses import dataclass, field

from labkit.measure.simulate.cost import TICKS, seconds
from labkit.measure.simulate.requests import Simulated

PER_E_FOLD = 1 / math.log(1.01)  # buckets that are 1% wide


class Gaps:
    """Counts of gaps between tokens (ticks), in buckets: there are too many to keep them all."""

    def __init__(self):
        self.counts: dict[int, int] = {}

    def add(self, gap: int, count: int = 1) -> None:
        bucket = bucket_of(gap)
        self.counts[bucket] = self.counts.get(bucket, 0) + count

    def merge(self, other: "Gaps") -> None:
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def percentile(self, percent: float) -> float | None:
        """Seconds by nearest rank, within 0.5%; None without a gap."""
        rank = math.ceil(sum(self.counts.values()) * percent / 100)
        for bucket in sorted(self.counts):
            rank -= self.counts[bucket]
            if rank <= 0:
                return math.exp((bucket + 0.5) / PER_E_FOLD) / TICKS
        return None


def bucket_of(gap: int) -> int:
    return int(math.log(gap) * PER_E_FOLD)


def column() -> array:
    return field(default_factory=lambda: array("d"))


@dataclass(eq=False)
class Group:
    """All requests of one priority and one tenant.

    A row of the arrays is a request that got all its tokens: seconds, and NaN for the TPOT of
    a single token.
    """

    priority: int
    tenant: str
    queue: array = column()
    ttft: array = column()
    tpot: array = column()
    longest_gap: array = column()
    e2e: array = column()
    num_tokens: array = column()  # of the answer
    gaps: Gaps = field(default_factory=Gaps)
    num_late: int = 0  # refused, or ended, because of their deadline
    num_failed: int = 0
    num_preemptions: int = 0
    num_swaps: int = 0

    def add(self, request: Simulated) -> None:
        """A request that has ended."""
        self.num_preemptions += request.num_preemptions
        self.num_swaps += request.num_swaps
        if request.finish_reason == "deadline":
            self.num_late += 1
            return
        if request.finish_reason == "error":
            self.num_failed += 1
            return
        num_gaps = len(request.output_token_ids) - 1
        self.num_tokens.append(num_gaps + 1)
        self.queue.append(seconds(request.started - request.arrived))
        self.ttft.append(seconds(request.first - request.arrived))
        decoding = seconds(request.last - request.first)
        self.tpot.append(decoding / num_gaps if num_gaps else math.nan)
        self.longest_gap.append(seconds(request.longest_gap))
        self.e2e.append(seconds(request.last - request.arrived))


class Records:
    """The groups, and what is counted over all requests."""

    MOST_ERRORS = 3  # told in words

    def __init__(self):
        self.groups: dict[tuple[int, str], Group] = {}
        self.errors: list[str] = []
        self.num_prompt_tokens = self.num_output_tokens = 0
        self.longest_prompt = 0
        self.num_arrived = self.num_ended = 0
        self.begin: int | None = None  # the first arrival
        self.end = 0  # the last token
        self.last_first = 0  # the last of all first tokens: from then on nobody waits

    def arrived(self, request: Simulated) -> None:
        self.num_arrived += 1
        self.longest_prompt = max(self.longest_prompt, request.num_prompt_tokens)
        if self.begin is None:
            self.begin = request.arrived
        key = request.priority, request.tenant
        if key not in self.groups:
            self.groups[key] = Group(*key)
        request.group = self.groups[key]

    def ended(self, request: Simulated) -> None:
        self.num_ended += 1
        request.group.add(request)
        if request.finish_reason == "error" and len(self.errors) < self.MOST_ERRORS:
            self.errors.append(request.error)
        if request.last is not None:
            self.last_first = max(self.last_first, request.first)
            self.end = max(self.end, request.last)
            self.num_prompt_tokens += request.num_prompt_tokens
            self.num_output_tokens += len(request.output_token_ids)

    @property
    def seconds(self) -> float:
        """From the first arrival to the last token."""
        return seconds(max(self.end - (self.begin or 0), 0))
