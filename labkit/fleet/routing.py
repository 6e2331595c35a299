"""Which replica gets a request: pure decisions, no sockets and no clock.

A router is asked with `choose`, and told with `dispatched` and `finished`: a replica's load
counts from dispatch, since a request that waits there for its first token is work already.
"""

import heapq
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence

from labkit.fleet.hashing import mixed, number_of
from labkit.fleet.replicas import NoReplica, Replica, Router, nobody

__all__ = ["ROUTERS", "NoReplica", "Replica", "Router", "nobody"]
MOST_KEYS = 100_000  # sessions whose replica is remembered; others are computed again


class RoundRobin(Router):
    """One after the other, however long their requests are."""

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        self.last = -1

    def choose(self, request, replicas: Sequence[Replica]) -> int:
        count = len(replicas)
        for step in range(1, count + 1):
            index = (self.last + step) % count
            if replicas[index].healthy:
                self.last = index
                return index
        raise nobody(replicas)


class LeastLoaded(Router):
    """The replica with the least tokens under way; of equals the one that changed longest ago.

    A heap with entries that lag behind, so that a choice among 1,000 replicas looks at a few.
    """

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        self.heap: list[tuple[tuple[int, int], int, int]] = []  # (load, turn, index)
        self.place: dict[str, int] = {}  # replica's name → index
        self.latest: list[int] = []  # the turn of each replica's newest entry
        self.turn = 0

    def choose(self, request, replicas: Sequence[Replica]) -> int:
        if len(self.place) != len(replicas):
            self._begin(replicas)
        unhealthy, found = [], None
        while self.heap and found is None:
            load, turn, index = self.heap[0]
            replica = replicas[index]
            if load != replica.load or turn != self.latest[index]:
                heapq.heappop(self.heap)
            elif replica.healthy:
                found = index
            else:
                unhealthy.append(heapq.heappop(self.heap))
        for entry in unhealthy:
            heapq.heappush(self.heap, entry)
        if found is None:
            raise nobody(replicas)
        return found

    def dispatched(self, request, replica: Replica) -> None:
        super().dispatched(request, replica)
        self._note(replica)

    def finished(self, request, replica: Replica) -> None:
        super().finished(request, replica)
        self._note(replica)

    def forget(self, names: set[str]) -> None:
        self.heap, self.place = [], {}  # all places have changed: the next choice begins anew

    def _begin(self, replicas: Sequence[Replica]) -> None:
        self.place = {replica.name: index for index, replica in enumerate(replicas)}
        self.heap = [(replica.load, 0, index) for index, replica in enumerate(replicas)]
        self.latest = [0] * len(replicas)
        heapq.heapify(self.heap)

    def _note(self, replica: Replica) -> None:
        if replica.name in self.place:
            self.turn += 1
            index = self.place[replica.name]
            self.latest[index] = self.turn
            heapq.heappush(self.heap, (replica.load, self.turn, index))
        if len(self.heap) > 4 * len(self.place) + 64:
            self.heap = [entry for entry in self.heap if entry[1] == self.latest[entry[2]]]
            heapq.heapify(self.heap)


class PowerOfTwoChoices(Router):
    """The less loaded of two drawn at random (Mitzenmacher, 2001): nearly as even as the least
    loaded, and it needs to know of two replicas only."""

    TRIES = 16  # draws before it looks for the healthy ones one by one

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        self.random = random.Random(seed)

    def choose(self, request, replicas: Sequence[Replica]) -> int:
        first = self._draw(replicas)
        second = self._draw(replicas, other_than=first)
        return first if replicas[first].load <= replicas[second].load else second

    def _draw(self, replicas: Sequence[Replica], other_than: int | None = None) -> int:
        """A healthy replica, not `other_than` unless there is no other."""
        for _ in range(self.TRIES if replicas else 0):
            index = int(self.random.random() * len(replicas))
            if replicas[index].healthy and index != other_than:
                return index
        healthy = [i for i, r in enumerate(replicas) if r.healthy and i != other_than]
        if healthy:
            return self.random.choice(healthy)
        if other_than is None:
            raise nobody(replicas)
        return other_than


class Session(Router):
    """All requests of a session to the same replica, which has its earlier turns in the cache.

    Rendezvous hashing (Thaler and Ravishankar, 1998): each pair of session and replica has a
    score, the highest wins. So a lost replica moves its own sessions, and nobody else's.
    Requests without a key go to the least loaded.
    """

    def __init__(self, seed: int = 0, key: Callable = lambda request: request.tenant):
        super().__init__(seed)
        self.key, self.others = key, LeastLoaded(seed)
        self.found: OrderedDict[str, int] = OrderedDict()  # key → the best of all replicas
        self.names: list[int] = []  # a number for each replica's name

    def choose(self, request, replicas: Sequence[Replica]) -> int:
        """The index of the healthy replica with the highest score for the request's session.

        `_best(key, indices)` finds the highest of some. A session whose replica is lost goes to
        the best of the others, and comes back when that one is healthy again; nobody else's
        moves. So `found` remembers the best of *all* replicas, for at most MOST_KEYS sessions
        (those found longest ago leave), and begins anew when a replica has joined: `names` has
        the `number_of` each name. A request without a key goes to the least loaded, `others`.
        Raises NoReplica (`nobody` makes it) when none is healthy.
        """
        key = self.key(request)
        if not key:
            return self.others.choose(request, replicas)
        if len(self.names) != len(replicas):
            self.names, self.found = [number_of(r.name) for r in replicas], OrderedDict()
        index = self.found.get(key)
        if index is None and replicas:
            index = self.found[key] = self._best(key, range(len(replicas)))
            if len(self.found) > MOST_KEYS:
                self.found.popitem(last=False)
        if index is not None and replicas[index].healthy:
            return index
        healthy = [i for i, replica in enumerate(replicas) if replica.healthy]
        if not healthy:
            raise nobody(replicas)
        return self._best(key, healthy)

    def dispatched(self, request, replica: Replica) -> None:
        self.others.dispatched(request, replica)

    def finished(self, request, replica: Replica) -> None:
        self.others.finished(request, replica)

    def forget(self, names: set[str]) -> None:
        self.others.forget(names)
        self.names = []  # all places have changed: the next choice begins anew

    def _best(self, key: str, indices: Sequence[int]) -> int:
        number = number_of(key)
        return max(indices, key=lambda index: mixed(number ^ self.names[index]))


class PrefixAware(Router):
    """The replica that was sent the longest beginning of this prompt before, unless it has
    `most_ahead` tokens more under way than the least loaded one, which gets it then.

    Beginnings are known by the hashes of full blocks, as the block pool has them
    (`hashes(request)` gives them; without token ids there are none). Up to `most_blocks` are
    remembered, the ones seen last. What a replica has evicted since is not known here. A beginning
    of less than `least_blocks` is nobody's: a chat template's first words are in every prompt.
    """

    def __init__(
        self,
        seed: int = 0,
        hashes: Callable[..., Sequence[bytes]] = lambda request: request.block_hashes,
        most_ahead: int = 8192,
        most_blocks: int = 1_000_000,
        least_blocks: int = 1,
    ):
        super().__init__(seed)
        self.hashes, self.most_ahead, self.most_blocks = hashes, most_ahead, most_blocks
        self.least_blocks = least_blocks
        self.others = LeastLoaded(seed)
        self.owners: OrderedDict[bytes, set[str]] = OrderedDict()  # block → names of replicas

    def choose(self, request, replicas: Sequence[Replica]) -> int:
        """The index of the healthy replica that gets the request; NoReplica when there is none.

        Of those that have the longest known beginning of it (`longest` gives their names) the one
        with the smallest `load`. But a cache must not become a queue: when it has more than
        `most_ahead` tokens more under way than the least loaded of the healthy (`others` knows
        that one), the latter gets the request. So it does when nobody has any of it.
        """
        least = self.others.choose(request, replicas)
        names = self.longest(request, {r.name for r in replicas if r.healthy})
        if not names:
            return least
        having = [i for i, replica in enumerate(replicas) if replica.name in names]
        index = min(having, key=lambda i: replicas[i].load)
        ahead = replicas[index].num_tokens - replicas[least].num_tokens
        return least if ahead > self.most_ahead else index

    def longest(self, request, names: set[str]) -> set[str]:
        """Those of `names` that have the longest known beginning; none when nobody has any."""
        found: set[str] = set()
        for number, block_hash in enumerate(self.hashes(request), start=1):
            names = names & self.owners.get(block_hash, set())
            if not names:
                break
            if number >= self.least_blocks:
                found = names
        return found

    def dispatched(self, request, replica: Replica) -> None:
        self.others.dispatched(request, replica)
        for block_hash in reversed(self.hashes(request)):  # without its first the rest is nothing
            self.owners.setdefault(block_hash, set()).add(replica.name)
            self.owners.move_to_end(block_hash)
        while len(self.owners) > self.most_blocks:
            self.owners.popitem(last=False)

    def finished(self, request, replica: Replica) -> None:
        self.others.finished(request, replica)

    def forget(self, names: set[str]) -> None:
        self.others.forget(names)
        for block_hash, owners in [*self.owners.items()]:
            owners -= names
            if not owners:
                del self.owners[block_hash]


ROUTERS = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "power-of-two": PowerOfTwoChoices,
    "session": Session,
    "prefix": PrefixAware,
}
