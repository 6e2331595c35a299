"""Whoever must be ready first goes first."""

import math
from collections.abc import Callable

from labkit.engine.policies.in_order import InOrder
from labkit.engine.request import Request


class EarliestDeadline(InOrder):
    """The earliest deadline first (Liu and Layland, 1973); those without one come last.

    A deadline that can't be met even if the request were served at once is refused before
    anything is computed for it: the time goes to those that can still be on time.
    """

    reads = frozenset()  # but the deadline, which counts under every policy

    def key(self, request: Request) -> float:
        return math.inf if request.deadline is None else request.deadline

    def refuse(self, request: Request, now: float, seconds: Callable) -> str | None:
        """Why a request can't be on time, in words (`passed`, `out_of_reach`); None when it can.

        `now` and its deadline are times on one clock; `seconds(request)` estimates how long it
        takes from now on. One that would be ready exactly at its deadline is on time.
        """
        if request.deadline is None:
            return None
        left = request.deadline - now
        if left < 0:
            return passed(request, -left)
        needed = seconds(request)
        return out_of_reach(request, needed, left) if needed > left else None


def passed(request: Request, late: float) -> str:
    return (
        f"request {request.request_id!r}: its deadline passed {late:.3f} s ago; "
        "it is a time on the engine's clock, not a duration"
    )


def out_of_reach(request: Request, needed: float, left: float) -> str:
    return (
        f"request {request.request_id!r} can't meet its deadline: "
        f"{request.num_tokens - request.num_computed_tokens} prompt tokens and "
        f"{request.max_tokens} output tokens take about {needed:.3f} s, "
        f"{left:.3f} s are left; ask for fewer tokens or give it more time"
    )
