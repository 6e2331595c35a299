"""A replica that accepts requests and never answers, for notebook 09. On a virtual clock."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from labkit.fleet.routing import Replica, RoundRobin

GAP_S, ANSWER_S, TIMEOUT_S = 0.25, 0.1, 2.0  # between requests; of an answer; until a retry
HANGS = 5.0, 20.0  # from when to when replica 0 answers nobody


@dataclass
class Asked:
    """One request, and every replica that it was sent to."""

    at: float
    tried: list[int] = field(default_factory=list)
    answered: float | None = None

    @property
    def waited_s(self) -> float:
        return self.answered - self.at


class AlwaysClosed:
    """No breaker: every replica is always tried."""

    def allows(self, now: float) -> bool:
        return True

    def failed(self, now: float) -> None:
        """Nothing is learnt."""

    def succeeded(self, now: float) -> None:
        """Nothing is learnt."""


def one_hangs(make_breaker: Callable, num_requests: int = 160, num_replicas: int = 4):
    """Requests one by one, in turn to the replicas whose breaker allows it.

    No first byte in `TIMEOUT_S`: it failed, and is sent to another replica, which is safe since
    the client has nothing yet. Replica 0 hangs in between; what it was sent then, it never
    answers. Returns the requests.
    """
    router, breakers = RoundRobin(), [make_breaker() for _ in range(num_replicas)]
    asked = [Asked(number * GAP_S) for number in range(num_requests)]
    events = [(one.at, number, "send", number, 0) for number, one in enumerate(asked)]
    heapq.heapify(events)
    counter = num_requests
    while events:
        now, _, what, number, index = heapq.heappop(events)
        one = asked[number]
        if what == "answer":
            one.answered = now
            breakers[index].succeeded(now)
            continue
        if what == "timeout":
            breakers[index].failed(now)
        index = allowed(router, breakers, now, one.tried)
        one.tried.append(index)
        hangs = index == 0 and HANGS[0] <= now < HANGS[1]
        then = (now + TIMEOUT_S, "timeout") if hangs else (now + ANSWER_S, "answer")
        counter += 1
        heapq.heappush(events, (then[0], counter, then[1], number, index))
    return asked


def allowed(router: RoundRobin, breakers: list, now: float, tried: list[int]) -> int:
    """The replica that is next, of those not tried yet whose breaker allows it.

    A breaker is asked about the replica that was chosen, and no other: asking takes the probe.
    """
    views = [Replica(f"r{i}", healthy=i not in tried) for i in range(len(breakers))]
    while True:
        index = router.choose(SimpleNamespace(), views)
        if breakers[index].allows(now):
            return index
        views[index].healthy = False
