"""Who is served next, and whose blocks are taken when they run out."""

from collections import OrderedDict
from collections.abc import Mapping

from labkit.engine.request import Request


class FCFS:
    """First come, first served. The last to be admitted is the first to be preempted.

    A policy owns the waiting requests, and that is all the state it has. The scheduler asks
    `peek` for the next one to admit, and `victim` for the one to preempt.
    """

    def __init__(self):
        self.waiting: OrderedDict[str, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self.waiting)

    def push(self, request: Request, first: bool = False) -> None:
        """A request waits: at the end of the line, or `first`, at its head.

        First are those that had their turn: a victim of preemption, and the copies of a prompt
        that is just computed. Victims are taken in the reverse order of admission, each put
        before the last one, so the line stays in order of arrival.
        """
        self.waiting[request.request_id] = request
        if first:
            self.waiting.move_to_end(request.request_id, last=False)

    def peek(self) -> Request | None:
        """The request to admit next, still waiting; None when nobody waits."""
        return next(iter(self.waiting.values()), None)

    def remove(self, request_id: str) -> Request | None:
        """Takes a request out of the line; None when it isn't in it."""
        return self.waiting.pop(request_id, None)

    def victim(self, running: Mapping[str, Request]) -> Request:
        """Which of `running` (in order of admission, not empty) gives up its blocks."""
        return running[next(reversed(running))]
