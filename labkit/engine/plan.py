"""What one step computes: made by the scheduler, carried out by the engine."""

from dataclasses import dataclass, field

from labkit.engine.request import Request


@dataclass(slots=True)  # not frozen: to make one would take three times as long
class Chunk:
    """The tokens of one request that one step computes: `num_tokens` from `start` on."""

    request: Request
    start: int
    num_tokens: int

    @property
    def end(self) -> int:
        return self.start + self.num_tokens

    @property
    def samples(self) -> bool:
        """Whether a new token follows: all known tokens are computed after this chunk."""
        return self.end == self.request.num_tokens


@dataclass
class StepPlan:
    """One step: made by `Scheduler.plan`, carried out by the engine, closed by `commit`.

    Invariant: the chunks' tokens and `budget` add up to `limit`, the budget that it began with.
    """

    budget: int  # tokens that may still be scheduled in this step
    time: float = 0.0  # when it was made
    chunks: dict[str, Chunk] = field(default_factory=dict)  # by request id
    # Copies of blocks, (from, to), made in this order before anything is computed.
    swap_out: list[tuple[int, int]] = field(default_factory=list)  # to the host
    swap_in: list[tuple[int, int]] = field(default_factory=list)  # from the host
    block_copies: list[tuple[int, int]] = field(default_factory=list)
    preempted: list[Request] = field(default_factory=list)
    failed: list[Request] = field(default_factory=list)  # ended in `plan`, by error or deadline

    def __post_init__(self):
        self.limit = self.budget

    def add(self, request: Request, num_tokens: int) -> None:
        self.chunks[request.request_id] = Chunk(request, request.num_computed_tokens, num_tokens)
        self.budget -= num_tokens

    def remove(self, request: Request) -> None:
        """Takes back what was planned for a request, if anything was."""
        chunk = self.chunks.pop(request.request_id, None)
        self.budget += chunk.num_tokens if chunk else 0

    @property
    def num_tokens(self) -> int:
        return self.limit - self.budget
