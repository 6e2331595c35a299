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
        if request.deadline is None:
            return None
        needed, left = seconds(request), request.deadline - now
        if needed <= left:
            return None
        if left < 0:
            return (
                f"request {request.request_id!r}: its deadline passed {-left:.3f} s ago; "
                "it is a time on the engine's clock, not a duration"
            )
        return (
            f"request {request.request_id!r} can't meet its deadline: "
            f"{request.num_tokens - request.num_computed_tokens} prompt tokens and "
            f"{request.max_tokens} output tokens take about {needed:.3f} s, "
            f"{left:.3f} s are left; ask for fewer tokens or give it more time"
        )
