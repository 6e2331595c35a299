"""Many replicas behind a router, on one virtual clock."""

import heapq
from collections.abc import Callable, Iterable, Sequence

from labkit.fleet.pools import DEDICATED, SHARED
from labkit.fleet.routing import Replica as View
from labkit.fleet.routing import Router
from labkit.measure.simulate.cost import ticks
from labkit.measure.simulate.records import Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.requests import Arrival, Simulated

TOLD_EVERY = 5000  # arrivals


class Fleet:
    """Draws arrivals one by one, sends each to a replica, and lets the replicas run in between.

    `keep_ids` gives the requests their token ids, for prefix caching; else only lengths.
    The first `num_dedicated` replicas are the dedicated pool of `labkit.fleet.pools`. What ends
    is written to `records` and dropped.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        router: Router,
        records: Records,
        keep_ids: bool = False,
        num_dedicated: int = 0,
    ):
        self.replicas, self.router, self.records = replicas, router, records
        self.keep_ids = keep_ids
        self.views = [
            View(f"replica-{index}", pool=DEDICATED if index < num_dedicated else SHARED)
            for index in range(len(replicas))
        ]
        self.alarms: list[tuple[int, int]] = []  # a heap of (tick, replica); some are out of date

    def run(self, arrivals: Iterable[Arrival], tell: Callable[[int], None] = lambda n: None):
        """Serves all of them. `arrivals` are in order of time; ValueError when they aren't."""
        now = 0
        for number, arrival in enumerate(arrivals):
            time = ticks(arrival.time)
            if time < now:
                raise ValueError(
                    f"request {number + 1} arrives at {arrival.time} s, before the one ahead of "
                    "it; sort them by arrival"
                )
            now = time
            self._run_until(now)
            self._dispatch(Simulated(number, arrival, self.keep_ids))
            if number % TOLD_EVERY == 0:
                tell(number)
        self._run_until(None)

    def _dispatch(self, request: Simulated) -> None:
        self.records.arrived(request)
        index = self.router.choose(request, self.views)
        self.router.dispatched(request, self.views[index])
        replica = self.replicas[index]
        before = replica.wakes_at
        replica.receive(request, request.arrived)
        if replica.wakes_at != before:
            heapq.heappush(self.alarms, (replica.wakes_at, index))

    def _run_until(self, end: int | None) -> None:
        """All that happens before `end`. An arrival comes before what happens in its tick, so
        that a step which begins then has it."""
        alarms = self.alarms
        while alarms and (end is None or alarms[0][0] < end):
            time, index = heapq.heappop(alarms)
            replica = self.replicas[index]
            if replica.wakes_at != time:
                continue
            for request in replica.wake():
                self.router.finished(request, self.views[index])
                self.records.ended(request)
            if replica.wakes_at is not None:
                heapq.heappush(alarms, (replica.wakes_at, index))
