"""What the rungs with fixed batches share: a line of requests, and the batch at its head."""

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from labkit.engine.request import Request, State, StepEvent, advance, refuse_duplicate
from labkit.model.sampling import sample


class BatchEngine(ABC):
    """Takes a batch from the line, runs it until its last request has ended, takes the next.

    Subclasses say which requests make a batch and how its logits are computed. `batch` keeps
    its finished requests until all have finished: nobody from the line takes their places. That
    is what *static* means, and what continuous batching does away with.
    """

    def __init__(
        self,
        eos_token_ids: Iterable[int],
        batch_size: int,
        clock: Callable[[], float] = time.perf_counter,
        seed: int = 0,
    ):
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}; at least 1 is needed")
        self.eos_token_ids = frozenset(eos_token_ids)
        self.batch_size, self.clock, self.seed = batch_size, clock, seed
        self.line: deque[Request] = deque()
        self.batch: list[Request] = []

    @property
    def unfinished(self) -> dict[str, Request]:
        """Every request that has not ended, by id: those of the batch, then the line."""
        held = [*self.batch, *self.line]
        return {r.request_id: r for r in held if r.state is not State.FINISHED}

    def add(self, request: Request) -> None:
        """Puts a request at the end of the line.

        Raises ValueError when its id is in use, or when it could never be served.
        """
        refuse_duplicate(request, self.unfinished)
        self.refuse_what_never_fits(request)
        request.prepare(self.eos_token_ids, self.seed)
        self.seed += 1
        self.line.append(request)

    def has_unfinished(self) -> bool:
        return bool(self.unfinished)

    def step(self) -> list[StepEvent]:
        """The next token of every unfinished request of the batch, an event for each, in order.

        An empty batch is taken from the line first (`next_batch`), and its requests are RUNNING
        then; nobody joins a batch that has begun. Those of the batch that have not ended are
        asked for in one call: `next_logits` gives a row for each, `sample` (logits, requests) a
        result for each, and then the clock is read, once. `advance` gives a request its result.
        At last `leave` is told who has ended with this step. With nobody to serve: `[]`.
        """
        if not self.batch:
            self.batch = self.next_batch()
            for request in self.batch:
                request.state = State.RUNNING
        running = [r for r in self.batch if r.state is not State.FINISHED]
        events = []
        if running:
            results = sample(self.next_logits(running), running)
            now = self.clock()
            events = [advance(r, result, now) for r, result in zip(running, results, strict=True)]
        self.leave([r for r in running if r.state is State.FINISHED])
        return events

    def abort(self, request_id: str) -> bool:
        """Ends a request in line or in the batch. False when there was none to end."""
        request = self.unfinished.get(request_id)
        if request is None:
            return False
        request.finish("abort")
        if request in self.line:
            self.line.remove(request)
        else:
            self.leave([request])
        return True

    def leave(self, ended: Sequence[Request]) -> None:
        """Requests of the batch have ended; the batch with its last one.

        `ended` are those that are FINISHED since the last call: `release` is called for each,
        once, so that nobody holds memory longer than needed. Their rows stay in `batch` until
        all of it are FINISHED. Then `batch` is empty, and a later step takes the next one.
        """
        for request in ended:
            self.release(request)
        if all(request.state is State.FINISHED for request in self.batch):
            self.batch = []

    def next_batch(self) -> list[Request]:
        """Takes the requests of the next batch from the line."""
        count = min(self.batch_size, len(self.line))
        return [self.line.popleft() for _ in range(count)]

    @abstractmethod
    def next_logits(self, running: list[Request]):
        """`[len(running), vocab]`: the scores of the token after each of `running`."""

    def refuse_what_never_fits(self, request: Request) -> None:  # noqa: B027
        """Raises ValueError, with the numbers, when there is not the room for `request`."""

    def release(self, request: Request) -> None:  # noqa: B027, a rung without a cache has none
        """Gives back the memory of a request that has ended."""
