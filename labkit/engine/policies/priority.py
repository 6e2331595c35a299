"""The most urgent first."""

from labkit.engine.policies.fcfs import check_above_0
from labkit.engine.policies.in_order import InOrder
from labkit.engine.request import Request, State


class Priority(InOrder):
    """The lowest `priority` first, and it may be negative.

    A waiting request takes slot and blocks from a running one that is strictly less urgent;
    among equals nobody is preempted. With `aging` a waiting request gains 1 in priority every
    so many seconds, so that nobody waits for ever. That orders admission and gives no right to
    preempt; but whoever was admitted by age keeps what it gained, or it would lose its slot to
    the next urgent one at once. So an urgent one behind one that has aged waits until that is
    admitted, and can preempt only then.
    """

    reads = frozenset({"priority"})

    def __init__(self, aging: float | None = None):
        if aging is not None:
            check_above_0("aging", aging)
        super().__init__()
        self.aging = aging

    def key(self, request: Request) -> float:
        """All that wait age alike, so who came earlier is ahead by a difference that stays."""
        return request.priority + (request.arrival / self.aging if self.aging else 0)

    def admit(self, request: Request, now: float) -> None:
        super().admit(request, now)
        gained = max(now - request.arrival, 0) / self.aging if self.aging else 0
        request.standing = request.priority - gained

    def may_preempt(self, waiting: Request, running: Request) -> bool:
        return waiting.priority < running.standing

    def place(self, request: Request) -> tuple[float, int]:
        running = request.state is State.RUNNING
        return request.standing if running else self.key(request), request.turn
