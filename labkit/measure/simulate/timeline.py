"""What a simulation did over time, for a picture: each request, or for many of them counts."""

from dataclasses import dataclass, field

from labkit.engine.plan import Chunk
from labkit.engine.request import Request
from labkit.measure.simulate.cost import seconds
from labkit.measure.simulate.requests import Simulated

MOST_ROWS = 60  # requests that have a row of their own
MOST_POINTS = 4000  # of the counts; when there are more, every other one is dropped


@dataclass
class Row:
    """One request: spans of (state, begin, end), in seconds; states are waiting, prefill,
    decode and preempted."""

    name: str
    spans: list[list] = field(default_factory=list)
    num_preemptions: int = 0


class Timeline:
    """Told by the watches of all replicas. `by_request` says which of the two it keeps.

    `rows` has a request's number → its row; `points` has (seconds, running, waiting, blocks in
    use), summed over all replicas.
    """

    def __init__(self, by_request: bool):
        self.by_request = by_request
        self.rows: dict[int, Row] = {}
        self.points: list[tuple[float, int, int, int]] = []
        self.counts: dict[object, tuple[int, int, int]] = {}  # of each replica
        self.total = (0, 0, 0)
        self.least_gap = 0.0

    def computed(self, replica, now: int) -> None:
        """A step or stride of a replica is over; nobody has left yet."""
        if self.by_request:
            begin, end = seconds(replica.began), seconds(now)
            for request, state in parts_of(replica):
                self.span(request.number, request, state, begin, end)
        else:
            scheduler = replica.scheduler
            waiting = len(scheduler.policy) + len(replica.inbox)
            counts = len(scheduler.running), waiting, scheduler.pool.num_used
            self._count(replica, counts, seconds(now))

    def idle(self, replica, now: int) -> None:
        """A replica has nothing to do from now on."""
        if not self.by_request:
            self._count(replica, (0, 0, 0), seconds(now))

    def span(self, number: int, request: Request, state: str, begin: float, end: float) -> None:
        """A request was computed from `begin` to `end`, on the clock of its arrival. Before that
        it waited, or had lost its place. `number` is its place in the picture."""
        row = self.rows.get(number)
        if row is None:
            row = self.rows[number] = Row(request.request_id)
        since = row.spans[-1][2] if row.spans else request.arrival
        if since < begin:
            preempted = request.num_preemptions > row.num_preemptions
            row.spans.append(["preempted" if preempted else "waiting", since, begin])
        row.num_preemptions = request.num_preemptions
        if row.spans and row.spans[-1][0] == state:
            row.spans[-1][2] = end
        else:
            row.spans.append([state, begin, end])

    def _count(self, replica, counts: tuple[int, int, int], now: float) -> None:
        before = self.counts.get(replica, (0, 0, 0))
        self.counts[replica] = counts
        total = zip(self.total, counts, before, strict=True)
        self.total = tuple(sum_ + new - old for sum_, new, old in total)
        if self.points and now - self.points[-1][0] < self.least_gap:
            return
        self.points.append((now, *self.total))
        if len(self.points) > MOST_POINTS:
            self.points = self.points[::2]
            self.least_gap = 2 * (now - self.points[0][0]) / MOST_POINTS


def parts_of(replica) -> list[tuple[Simulated, str]]:
    """Who was computed in the step or stride of a replica, and what."""
    if replica.stride:
        return [(request, "decode") for request in replica.scheduler.running.values()]
    return [(chunk.request, state_of(chunk)) for chunk in replica.plan.chunks.values()]


def state_of(chunk: Chunk) -> str:
    generates = chunk.num_tokens == 1 and chunk.start >= chunk.request.num_prompt_tokens
    return "decode" if generates else "prefill"
