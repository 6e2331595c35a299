"""How many replicas a load needs: the decision of an autoscaler, without clock and cluster."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """What all replicas together have at a moment."""

    num_replicas: int  # that serve, or are being started
    num_requests: int  # waiting and running
    kv_usage: float  # share of their KV blocks in use, 0 to 1


@dataclass(frozen=True)
class Limits:
    """What an operator allows. ValueError for limits that contradict each other."""

    min_replicas: int = 1
    max_replicas: int = 4
    requests_each: float = 8.0  # of a replica that is as busy as it should be
    kv_high: float = 0.9  # above it a replica is about to preempt
    kv_low: float = 0.4  # below it all fits into fewer; under kv_high / 2, or 1 and 2 alternate

    def __post_init__(self):
        if not 1 <= self.min_replicas <= self.max_replicas:
            raise ValueError(
                f"min_replicas is {self.min_replicas} and max_replicas {self.max_replicas}; "
                "1 <= min_replicas <= max_replicas is needed"
            )
        if not 0 < self.kv_low < self.kv_high <= 1:
            raise ValueError(
                f"kv_low is {self.kv_low} and kv_high {self.kv_high}; "
                "0 < kv_low < kv_high <= 1 is needed"
            )
        if not self.requests_each > 0:
            raise ValueError(f"requests_each is {self.requests_each}; more than 0 is needed")


def wanted_replicas(load: Load, limits: Limits) -> int:
    """How many replicas there should be, between `limits.min_replicas` and `.max_replicas`.

    Enough that each has `requests_each` requests at most, as Kubernetes' autoscaler counts them:
    ceil(requests / requests_each). A full KV cache is load that a count of requests misses: with
    `kv_usage` above `kv_high` there is one replica more than now at least. And between `kv_low`
    and `kv_high` none is taken away: what it holds would have to fit elsewhere. That gap keeps
    the number from swinging.
    """
    wanted = math.ceil(load.num_requests / limits.requests_each)
    if load.kv_usage > limits.kv_high:
        wanted = max(wanted, load.num_replicas + 1)
    elif load.kv_usage >= limits.kv_low:
        wanted = max(wanted, load.num_replicas)
    return min(max(wanted, limits.min_replicas), limits.max_replicas)
