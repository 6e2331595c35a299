"""Two pools of replicas behind one router: a dedicated one for urgent requests, a shared one.

The *dedicated* pool is latency-optimized: kept so empty that an urgent request starts at once. The
*shared* one is cost-optimized: kept busy, since a card costs the same whether it works or not.
Each may help the other out, by rule. Pure, so that the simulator uses it too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.fleet.routing import Replica, Router, nobody

DEDICATED, SHARED = "dedicated", "shared"


@dataclass(frozen=True)
class Spill:
    """When a pool helps the other. Tokens are those under way on a pool's least loaded replica.

    An urgent request leaves the dedicated pool where `urgent_above` tokens or more are under way
    everywhere, and only for a replica with fewer. Another one may use the dedicated pool where
    fewer than `lend_below` are: 0 lends nothing, 1 lends a replica that is idle.
    """

    urgent_above: int = 4096
    lend_below: int = 0


class Pools(Router):
    """Urgent requests to the dedicated pool, the others to the shared one, with spill-over.

    `is_urgent(request)` says which is which: unless told, a priority below 1, which chat has.
    Inside a pool the least loaded replica is taken.
    """

    def __init__(
        self,
        seed: int = 0,
        spill: Spill = Spill(),  # noqa: B008 - it can't be changed
        is_urgent: Callable[..., bool] = lambda request: request.priority < 1,
    ):
        super().__init__(seed)
        self.spill, self.is_urgent = spill, is_urgent

    def choose(self, request, replicas: Sequence[Replica]) -> int:
        """The index of the replica that gets the request, by the rules of `self.spill`.

        At home is the dedicated pool for an urgent request, else the shared one; away is the
        other pool. `least_loaded` gives the index of a pool's healthy replica with the fewest
        tokens, or None when it has none: a pool that is lost altogether is replaced by the
        other, whatever the rules say. Raises NoReplica (`nobody` makes it) when none is healthy.
        """
        urgent = self.is_urgent(request)
        home = self.least_loaded(replicas, DEDICATED if urgent else SHARED)
        away = self.least_loaded(replicas, SHARED if urgent else DEDICATED)
        if home is None and away is None:
            raise nobody(replicas)
        if home is None or away is None:
            return away if home is None else home
        at_home, elsewhere = replicas[home].num_tokens, replicas[away].num_tokens
        if urgent:
            leaves = at_home >= self.spill.urgent_above and elsewhere < at_home
        else:
            leaves = elsewhere < self.spill.lend_below and elsewhere < at_home
        return away if leaves else home

    def least_loaded(self, replicas: Sequence[Replica], pool: str) -> int | None:
        """The index of the pool's healthy replica with the least load; None if it has none."""
        own = [i for i, r in enumerate(replicas) if r.healthy and r.pool == pool]
        return min(own, key=lambda index: replicas[index].load, default=None)
