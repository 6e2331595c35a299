"""First come, first served: the simplest policy, and the interface of all."""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from labkit.engine.request import Request


class FCFS:
    """First come, first served. The last to be admitted is the first to be preempted.

    A policy owns the waiting requests, and that is all the state this one has. The scheduler asks
    `peek` for the next one to admit, and `victim` for the one to preempt when blocks run out.
    `reads` are the fields of a request by which it decides; an engine refuses others.
    """

    reads = frozenset()

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

    def admit(self, request: Request, now: float) -> None:
        """The request that `peek` gave runs from now on."""
        self.remove(request.request_id)

    def charge(self, request: Request, num_prompt_tokens: int, num_output_tokens: int) -> None:
        """A request is served so many tokens more: its prompt as it is first admitted, then each
        new one. Nobody pays here."""

    def refuse(self, request: Request, now: float, seconds: Callable) -> str | None:
        """Why a request should not be served at all; None when it should. Asked as it arrives,
        and again before it is first admitted. `seconds(request)` estimates how long it takes."""

    def may_preempt(self, waiting: Request, running: Request) -> bool:
        """Whether a waiting request may take slot and blocks from this running one."""
        return False

    def in_order(self, running: Iterable[Request]) -> list[Request]:
        """In which order running requests get their next tokens: here as they were admitted."""
        return list(running)

    def victim(self, running: Iterable[Request]) -> Request:
        """Which of `running` (in order of admission, not empty) gives up its blocks."""
        return list(running)[-1]


def check_above_0(name: str, value) -> None:
    """Raises ValueError unless it is a finite number above 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and 1e-9 <= value <= 1e9):
        raise ValueError(f"{name} is {value!r}; a number from 1e-9 to 1e9 is needed")
