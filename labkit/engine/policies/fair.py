"""Everybody the same share: the virtual token counter.

Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024).
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import count

from labkit.engine.policies.fcfs import FCFS, check_above_0
from labkit.engine.request import Request


class Fair(FCFS):
    """The tenant that got the least so far goes first, within a tenant who came first.

    A tenant has a counter: `input_weight` times the prompt tokens of its admitted requests plus
    `output_weight` times their output tokens, divided by the tenant's weight (`weights`, 1 for
    those not named). A tenant that comes back to the line is lifted to the smallest counter in
    it: who was away has no credit, and none is owed.
    """

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        input_weight: float = 1.0,
        output_weight: float = 2.0,
    ):
        self.weights = dict(weights or {})
        prices = {"input_weight": input_weight, "output_weight": output_weight}
        for name, value in (self.weights | prices).items():
            check_above_0(f"weight of {name!r}", value)
        self.input_weight, self.output_weight = input_weight, output_weight
        self.lines: dict[str, OrderedDict[str, Request]] = {}  # tenant → its waiting requests
        self.waiting: dict[str, str] = {}  # request id → tenant
        self.counters: dict[str, float] = {}
        self.served: dict[str, str] = {}  # admitted request → tenant
        # A heap of (counter, turn, tenant); counters only grow, so it lags behind. Of equal
        # counters the one goes first that is longer in line, or newcomers would pass it for ever.
        self.least: list[tuple[float, int, str]] = []
        self.in_least: set[str] = set()
        self.last_left: str | None = None  # the tenant that left the line last
        self.turns = count(1)

    def push(self, request: Request, first: bool = False) -> None:
        tenant = request.tenant
        request.turn = request.turn or next(self.turns)
        if tenant not in self.lines:
            self._join(tenant, had_its_turn=first)
        line = self.lines[tenant]
        line[request.request_id] = request
        if first:
            line.move_to_end(request.request_id, last=False)
        self.waiting[request.request_id] = tenant
        self.served.pop(request.request_id, None)
        if len(self.counters) > 2 * (len(self.lines) + len(self.served)) + 1000:
            self._forget_idle()

    def _join(self, tenant: str, had_its_turn: bool) -> None:
        """A tenant of whom nobody waits comes to the line: `lines[tenant]` is made here, empty.

        Who was away gets no credit for it: its counter is lifted to the smallest one in the line
        (`_floor`), if it is below. One whose request `had_its_turn` (it was preempted) was never
        away, and keeps its counter. The heap `least` has an entry for every tenant in line.
        """
        counter = self.counters.get(tenant, 0.0)
        if not had_its_turn:
            counter = max(counter, self._floor())
        self.counters[tenant] = counter
        self.lines[tenant] = OrderedDict()
        if tenant not in self.in_least:
            self.in_least.add(tenant)
            heapq.heappush(self.least, (counter, next(self.turns), tenant))

    def peek(self) -> Request | None:
        return next(iter(self.lines[self._next_tenant()].values())) if self.lines else None

    def remove(self, request_id: str) -> Request | None:
        tenant = self.waiting.pop(request_id, None)
        if tenant is None:
            self.served.pop(request_id, None)
            return None
        request = self.lines[tenant].pop(request_id)
        if not self.lines[tenant]:
            del self.lines[tenant]
            self.last_left = tenant
        return request

    def admit(self, request: Request, now: float) -> None:
        super().admit(request, now)
        self.served[request.request_id] = request.tenant

    def charge(self, request: Request, num_prompt_tokens: int, num_output_tokens: int) -> None:
        service = self.input_weight * num_prompt_tokens + self.output_weight * num_output_tokens
        self.counters[request.tenant] += service / self.weights.get(request.tenant, 1.0)

    def victim(self, running: Iterable[Request]) -> Request:
        return max(running, key=lambda r: (self.counters[r.tenant], r.turn))

    def _next_tenant(self) -> str:
        """The tenant in line with the smallest counter; there is one."""
        while True:
            counter, turn, tenant = self.least[0]
            if tenant in self.lines and counter == self.counters[tenant]:
                return tenant
            if tenant in self.lines:
                heapq.heapreplace(self.least, (self.counters[tenant], turn, tenant))
            else:
                heapq.heappop(self.least)
                self.in_least.remove(tenant)

    def _floor(self) -> float:
        """The counter that a tenant which comes to the line has at the least."""
        if self.lines:
            return self.counters[self._next_tenant()]
        return self.counters.get(self.last_left, 0.0)

    def _forget_idle(self) -> None:
        """Drops the counters of tenants that are away and below the floor, to which they will be
        lifted anyway: a server may see millions."""
        floor, here = self._floor(), {*self.lines, *self.served.values(), self.last_left}
        self.counters = {t: c for t, c in self.counters.items() if t in here or c > floor}
