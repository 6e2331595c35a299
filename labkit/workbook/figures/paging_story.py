"""A short history of a block pool, as a list of X-rays: no model, no clock."""

from labkit.engine.plan import Chunk, StepPlan
from labkit.engine.request import Request
from labkit.workbook.figures.xray_state import XRay, xray_of

SYSTEM = [1, 2, 3, 4, 5, 6, 7, 8]  # two blocks of 4 that several prompts begin with


class History:
    """A pool, its books, and the requests that hold blocks; `states` grows with each `note`."""

    def __init__(self, pool, books):
        self.pool, self.books = pool, books
        self.requests: dict[str, Request] = {}
        self.states: list[XRay] = []

    def note(self, text: str, bad: tuple[str, int] | None = None) -> None:
        self.states.append(xray_of(self.pool, self.requests.values(), bad=bad, note=text))

    def admit(self, name: str, prompt: list[int]) -> None:
        """A request enters, shares what is cached of its prompt, and computes the rest."""
        request = self.requests[name] = Request(name, prompt, max_tokens=64)
        shared = self.books.find_cached(request)
        num_cached = len(shared) * self.pool.block_size
        self.books.start(StepPlan(1000), request, shared, num_cached)
        self.compute(request)

    def generate(self, name: str, count: int) -> None:
        """It gets `count` more tokens, one after the other."""
        request = self.requests[name]
        for _ in range(count):
            request.output_token_ids.append(100 + len(request.output_token_ids))
            self.compute(request)

    def compute(self, request: Request) -> None:
        count = request.num_tokens - request.num_computed_tokens
        self.books.take(StepPlan(1000), request, count, self.books.needed(request, count))
        self.books.note_computed(request, Chunk(request, request.num_computed_tokens, count))

    def end(self, name: str) -> None:
        self.books.release(self.requests.pop(name))


def pool_story(BlockPool, Books) -> list[XRay]:  # noqa: N803, they are classes
    """What happens to 16 blocks of 4 tokens: growth, a hole, a shared prefix, an invalid access.

    The classes are labkit's or a learner's.
    """
    pool = BlockPool(16, 4)
    history = History(pool, Books(pool))
    history.note("An empty pool: 16 blocks of 4 slots.")
    history.admit("a", [*SYSTEM, 11, 12])
    history.note("a: 10 prompt tokens take 3 blocks; 2 slots of the last one are empty.")
    history.admit("b", [21, 22, 23, 24, 25, 26])
    history.note("b: 6 tokens take the next 2 blocks.")
    history.generate("a", 5)
    history.note("a has generated 5 tokens. Its new block is not beside its others.")
    history.generate("b", 7)
    history.note("b has grown as well. Neither had to know beforehand how long it would be.")
    history.end("a")
    history.note("a has ended. Its full blocks are free, and can still be found.")
    history.admit("c", [*SYSTEM, 31, 32, 33])
    history.note("c begins as a did: 2 blocks of a are found, 8 tokens are not computed.")
    history.admit("d", [*SYSTEM, 41])
    history.note("d begins so, too: c and d hold the same 2 blocks. Nobody writes to them.")
    history.generate("b", 8)
    history.generate("d", 12)
    history.note("b and d grow, over free blocks that hold nothing first.")
    history.end("c")
    history.note("c has ended: the shared blocks stay with d.")
    history.note("A wrong slot: the next token of b, written before b has a block for it.", (
        "b", history.requests["b"].num_computed_tokens + 3,
    ))  # fmt: skip
    return history.states
