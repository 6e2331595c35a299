"""Policies that serve by a number which a request has: the smallest first."""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterable
from itertools import count

from labkit.engine.policies.fcfs import FCFS
from labkit.engine.request import Request


class InOrder(FCFS, ABC):
    """The smallest `key` first; of equal keys the one that came first.

    A preempted request keeps the place in line that it got when it came. So does a key: it must
    not change while a request waits. When blocks run out, the last in this order gives up its own.
    """

    reads = frozenset({"priority", "tenant"})  # a key of one's own may

    def __init__(self):
        self.waiting: dict[str, tuple] = {}  # request id → its live entry in `line`
        self.line: list[tuple] = []  # a heap of (key, turn, request), with entries that are dead
        self.turns = count(1)

    @abstractmethod
    def key(self, request: Request) -> float:
        """Who has the smallest goes first."""

    def place(self, request: Request) -> tuple[float, int]:
        return self.key(request), request.turn

    def push(self, request: Request, first: bool = False) -> None:
        request.turn = request.turn or next(self.turns)
        entry = (*self.place(request), request)
        self.waiting[request.request_id] = entry
        heapq.heappush(self.line, entry)
        if len(self.line) > 2 * len(self.waiting) + 64:  # most are dead: those that were aborted
            self.line = list(self.waiting.values())
            heapq.heapify(self.line)

    def peek(self) -> Request | None:
        while self.line:
            request = self.line[0][-1]
            if self.waiting.get(request.request_id) is self.line[0]:
                return request
            heapq.heappop(self.line)
        return None

    def remove(self, request_id: str) -> Request | None:
        entry = self.waiting.pop(request_id, None)
        return entry and entry[-1]

    def in_order(self, running: Iterable[Request]) -> list[Request]:
        return sorted(running, key=self.place)

    def victim(self, running: Iterable[Request]) -> Request:
        return max(running, key=self.place)
