"""What a server loses that tracks a request by a sequence id alone: counted in virtual time.

Scheduler and engine loop are real, and may be a learner's. See `processes_virtual`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from labkit.engine.blocks import BlockPool
from labkit.engine.policies.priority import Priority
from labkit.measure.experiments.processes_virtual import VirtualEngine
from labkit.model.sampling_params import SamplingParams
from labkit.serving.messages import Abort, Add

NUM_BLOCKS, BLOCK_SIZE = 16, 4
STATES = ("waiting", "running", "preempted")
LONG = 20  # tokens that the client who leaves had asked for
MOST_STEPS = 200


@dataclass(frozen=True)
class Loss:
    """What a client left behind that went away while its request was in `state`.

    `blocks_held` right after it left; `tokens_for_nobody` made until all was done; `next_waits`
    are the steps until somebody who came then has a first token; `blocks_after` at the end.
    """

    state: str
    blocks_held: int
    tokens_for_nobody: int
    next_waits: int
    blocks_after: int


def make_loop(scheduler: Callable, engine_loop: Callable):
    """A loop over one slot, by priority, and `NUM_BLOCKS` blocks."""
    pool = BlockPool(NUM_BLOCKS, BLOCK_SIZE, prefix_caching=False)
    return engine_loop(VirtualEngine(scheduler(pool, max_num_seqs=1, policy=Priority())))


def ask(loop, name: str, prompt: str, max_tokens: int, priority: int = 0) -> None:
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    answer = loop.handle(Add(name, [*prompt.encode()], params, loop.core.now, priority))
    assert type(answer).__name__ == "Accepted", answer


def lose(scheduler: Callable, engine_loop: Callable, state: str, tells_engine: bool) -> Loss:
    """A client leaves while its request is in `state`; the front end tells the engine, or not."""
    loop = make_loop(scheduler, engine_loop)
    if state == "waiting":
        ask(loop, "other", "other", 4)
        loop.step()
    ask(loop, "gone", "gone, ", LONG, priority=5)
    for _ in range(3):
        loop.step()
    if state == "waiting":  # the other one has made its last token: it waits for one step more
        assert "gone" in loop.waiting
    if state == "preempted":
        ask(loop, "urgent", "urgent", 4)
        loop.step()
    if tells_engine:
        loop.handle(Abort(["gone"]))
    pool = loop.core.scheduler.pool
    request = loop.core.scheduler.known.get("gone")
    held = len(request.block_table) if request else 0
    ask(loop, "next", "next", 4, priority=5)
    came, nobody, first = loop.core.now, 0, None
    for _ in range(MOST_STEPS):
        if not loop.has_work:
            break
        for token in loop.step().tokens:
            nobody += token.request_id == "gone"
            if token.request_id == "next" and first is None:
                first = loop.core.now
    return Loss(state, held, nobody, int(first - came), pool.num_used)


@dataclass(frozen=True)
class Mixed:
    """What two clients with one label read."""

    first: str
    second: str


def by_label(scheduler: Callable, engine_loop: Callable) -> Mixed:
    """A front end whose table has the client's label for a key: the second takes the entry."""
    loop = two_slots(scheduler, engine_loop)
    readers: dict[str, list[int]] = {}
    label_of, seen = {}, []
    for number, prompt in enumerate(("A", "B")):
        readers["job-1"] = []  # whoever came first is not in the table any more
        seen.append(readers["job-1"])
        label_of[f"engine-{number}"] = "job-1"
        ask(loop, f"engine-{number}", prompt, 4)
    while loop.has_work:
        for token in loop.step().tokens:
            readers[label_of[token.request_id]].append(token.token_id)
    return Mixed(*(bytes(tokens).decode() for tokens in seen))


def by_request(scheduler: Callable, engine_loop: Callable, registry: Callable) -> Mixed:
    """The same clients with labkit's tickets: the label is a note on them, and no key."""
    from labkit.measure.experiments.processes_virtual import Bytes
    from labkit.serving.lifecycle import Asked, Ticket

    loop, registry = two_slots(scheduler, engine_loop), registry(Silent())
    tickets = []
    for number, prompt in enumerate(("A", "B")):
        params = SamplingParams(max_tokens=4, ignore_eos=True)
        asked = Asked("completions", [[*prompt.encode()]], params, label="job-1")
        tickets.append(Ticket(f"cmpl-{number}", asked, Bytes(), lambda *ids: None, arrival=0.0))
        registry.open(tickets[-1])
        ask(loop, f"cmpl-{number}", prompt, 4)
    while loop.has_work:
        registry.on_step(loop.step())
    return Mixed(*(ticket.choices[0].output.text for ticket in tickets))


def two_slots(scheduler: Callable, engine_loop: Callable):
    pool = BlockPool(NUM_BLOCKS, BLOCK_SIZE, prefix_caching=False)
    return engine_loop(VirtualEngine(scheduler(pool, max_num_seqs=2)))


class Silent:
    """An observer that does nothing."""

    def __getattr__(self, name: str):
        return lambda *arguments: None
