"""What a router knows of a replica, and what every router can be asked and told."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

UNTOLD_TOKENS = 256  # of an answer whose request doesn't limit it


class NoReplica(RuntimeError):
    """No replica is healthy."""


@dataclass(eq=False, slots=True)
class Replica:
    """What a router knows of a replica. `name` is unique, and never changes."""

    name: str
    healthy: bool = True
    num_requests: int = 0  # dispatched to it and not finished
    num_tokens: int = 0  # of these requests: prompt and the most that may be generated
    pool: str = "shared"  # see `labkit.fleet.pools`

    @property
    def load(self) -> tuple[int, int]:
        """Tokens first: one long request is more work than two short ones."""
        return self.num_tokens, self.num_requests


def tokens_of(request) -> int:
    """What a request may come to: a router doesn't know how early an answer ends."""
    return len(request.prompt_token_ids) + request.max_tokens


class Router(ABC):
    """The interface of all routers, and the count of what is under way.

    `choose(request, replicas)` gives an index of `replicas`, always of a healthy one; it raises
    NoReplica when there is none. `replicas` is one list that may grow: a replica that is lost
    stays in its place with `healthy` False, until `forget` says that it is no longer in the list.
    """

    def __init__(self, seed: int = 0):
        self.seed = seed

    @abstractmethod
    def choose(self, request, replicas: Sequence[Replica]) -> int:
        """The index of the replica that gets the request."""

    def dispatched(self, request, replica: Replica) -> None:
        """The request was sent to `replica`: it is part of its load from now on."""
        replica.num_requests += 1
        replica.num_tokens += tokens_of(request)

    def finished(self, request, replica: Replica) -> None:
        """The request has ended there, for whatever reason."""
        replica.num_requests -= 1
        replica.num_tokens -= tokens_of(request)

    def forget(self, names: set[str]) -> None:  # noqa: B027 - most remember no names
        """Replicas of these names never come back; the list is without them from now on."""


def nobody(replicas: Sequence[Replica]) -> NoReplica:
    return NoReplica(
        f"0 of {len(replicas)} replicas are healthy, at least 1 is needed; start one, or wait"
    )
