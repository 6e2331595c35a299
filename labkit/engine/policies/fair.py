"""Everybody the same share: the virtual token counter.

Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024).
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from itertools import count

from labkit.engine.policies.fcfs import FCFS
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
            if not value > 0:
                raise ValueError(f"weight of {name!r} is {value!r}; a number above 0 is needed")
        self.input_weight, self.output_weight = input_weight, output_weight
        self.lines: dict[str, OrderedDict[str, Request]] = {}  # tenant → its waiting requests
        self.waiting: dict[str, str] = {}  # request id → tenant
        self.counters: dict[str, float] = {}
        self.least: list[tuple[float, str]] = []  # a heap; counters only grow, so it lags behind
        self.in_least: set[str] = set()
        self.last_left = 0.0  # the counter of the tenant that left the line last
        self.turns = count(1)

    def push(self, request: Request, first: bool = False) -> None:
        tenant = request.tenant
        request.turn = request.turn or next(self.turns)
        if tenant not in self.lines:
            counter = self.counters.get(tenant, 0.0)
            if not first:
                floor = self.counters[self._next_tenant()] if self.lines else self.last_left
                counter = max(counter, floor)
            self.counters[tenant] = counter
            self.lines[tenant] = OrderedDict()
            if tenant not in self.in_least:
                self.in_least.add(tenant)
                heapq.heappush(self.least, (counter, tenant))
        line = self.lines[tenant]
        line[request.request_id] = request
        if first:
            line.move_to_end(request.request_id, last=False)
        self.waiting[request.request_id] = tenant

    def peek(self) -> Request | None:
        return next(iter(self.lines[self._next_tenant()].values())) if self.lines else None

    def remove(self, request_id: str) -> Request | None:
        tenant = self.waiting.pop(request_id, None)
        if tenant is None:
            return None
        request = self.lines[tenant].pop(request_id)
        if not self.lines[tenant]:
            del self.lines[tenant]
            self.last_left = self.counters[tenant]
        return request

    def charge(self, request: Request, num_prompt_tokens: int, num_output_tokens: int) -> None:
        service = self.input_weight * num_prompt_tokens + self.output_weight * num_output_tokens
        self.counters[request.tenant] += service / self.weights.get(request.tenant, 1.0)

    def victim(self, running: Iterable[Request]) -> Request:
        return max(running, key=lambda r: (self.counters[r.tenant], r.turn))

    def _next_tenant(self) -> str:
        """The tenant in line with the smallest counter; there is one."""
        while True:
            counter, tenant = self.least[0]
            if tenant in self.lines and counter == self.counters[tenant]:
                return tenant
            if tenant in self.lines:
                heapq.heapreplace(self.least, (self.counters[tenant], tenant))
            else:
                heapq.heappop(self.least)
                self.in_least.remove(tenant)
