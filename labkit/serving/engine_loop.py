"""The engine's own loop: messages in, one step, messages out. The same wherever it runs."""

from collections.abc import Callable

from labkit.engine.policies import POLICIES
from labkit.engine.request import Request, State
from labkit.library import Engine
from labkit.serving.messages import (
    Abort,
    Aborted,
    Accepted,
    Add,
    FromEngine,
    Held,
    Look,
    Ready,
    Refused,
    Sight,
    Started,
    Step,
    Stop,
    ToEngine,
    Token,
    TokenLogprobs,
)

POLICY_NAMES = {made: name for name, made in POLICIES.items()}
Receive = Callable[[bool], ToEngine | None]  # the next message; waits for one if told to
Send = Callable[[FromEngine], None]


def run(loop: "EngineLoop", receive: Receive, send: Send) -> None:
    """Takes what has come, does one step, tells of it; sleeps while there is nothing to do.

    `receive(wait)` returns the next message; with none there it returns None, or sleeps until one
    comes if `wait`. Sleep only while the loop has no work. Before a step all messages that are
    there are taken, so that an abort or a newcomer never waits for more than the step under way.
    `loop.handle` answers a message; an answer that isn't None is sent at once. A `Stop` ends the
    loop there and then, whatever is open. Then `loop.step()` is done once, and sent.
    """
    while True:
        while message := receive(not loop.has_work):
            if isinstance(message, Stop):
                return
            answer = loop.handle(message)
            if answer is not None:
                send(answer)
        send(loop.step())


class EngineLoop:
    """An engine on any rung, behind messages.

    `open` holds every request from `Add` to its end, `waiting` those that have not run yet. No
    more than `max_queued_requests` may be left waiting; whether a newcomer would be is known
    here, where the requests are, when it arrives.
    """

    def __init__(self, engine: Engine, max_queued_requests: int = 256):
        self.engine, self.core = engine, engine.core
        self.max_queued_requests = max_queued_requests
        self.max_num_seqs = slots(engine.core)
        self.open: dict[str, Request] = {}
        self.waiting: dict[str, Request] = {}
        self.preemptions: dict[str, int] = {}  # of the open ones that have run
        self.crowded = False  # the last step left somebody waiting

    @property
    def has_work(self) -> bool:
        return self.core.has_unfinished()

    def handle(self, message: ToEngine) -> FromEngine | None:
        """Does what a message asks; returns the answer to it."""
        match message:
            case Add():
                return self.add(message)
            case Abort():
                ended = [name for name in message.request_ids if self.abort(name)]
                return Aborted(message.call, ended)
            case Look():
                return self.look(message.call)

    def add(self, asked: Add) -> Accepted | Refused:
        """Puts a prompt in line with all its answers (`params.n`), or says why not.

        First the cap: with all its answers no more than `max_queued_requests` `would_wait`, else
        it is `Refused` as `busy`, with the cap in the reason: try again later (HTTP 429). Then
        `engine.add(prompt_token_ids, params, request_id=, arrival=, cache_salt=, priority=,
        tenant=, deadline=)` gives a list of requests; its ValueError is the request's own fault:
        `Refused` with that text, not busy (400). Each request is in `open` and `waiting` then,
        by its id. Of one that is refused nothing is kept.
        """
        excess = self.would_wait(asked.params.n) - self.max_queued_requests
        if excess > 0:
            reason = (
                f"{len(self.waiting)} requests wait already, and {self.max_queued_requests} may "
                "(--max-queued-requests); try again later"
            )
            return Refused(asked.request_id, reason, busy=True)
        try:
            requests = self.engine.add(
                asked.prompt_token_ids, asked.params, request_id=asked.request_id,
                arrival=asked.arrival, cache_salt=asked.cache_salt, priority=asked.priority,
                tenant=asked.tenant, deadline=asked.deadline,
            )  # fmt: skip
        except ValueError as error:
            return Refused(asked.request_id, str(error))
        for request in requests:
            self.open[request.request_id] = self.waiting[request.request_id] = request
        return Accepted(asked.request_id)

    def would_wait(self, count: int) -> int:
        """How many requests would wait if `count` more came.

        A free slot is for the next one that comes, unless somebody could not use it in the last
        step: for want of blocks, say.
        """
        crowded = self.crowded and self.waiting
        free = 0 if crowded else self.max_num_seqs - (len(self.open) - len(self.waiting))
        return len(self.waiting) + count - max(free, 0)

    def abort(self, request_id: str) -> bool:
        """Ends a request in whatever state it is; False when it was not open."""
        if request_id not in self.open:
            return False
        self.forget(request_id)
        return self.core.abort(request_id)

    def step(self) -> Step:
        """One step of the engine, and all that came of it."""
        clock, busy = self.core.clock, getattr(self.core, "device_busy_s", None)
        began = clock()
        events = self.core.step()
        ended = clock()
        started = [self.start(r, began) for r in [*self.waiting.values()] if has_started(r)]
        preempted = [name for name in self.preemptions if self.was_preempted(name)]
        for event in events:
            if event.finish_reason is not None:
                self.forget(event.request_id)
        self.crowded = bool(self.waiting)
        running = sum(self.open[n].state is not State.PREEMPTED for n in self.preemptions)
        pool = pool_of(self.core)
        return Step(
            began,
            ended,
            ended - began if busy is None else self.core.device_busy_s - busy,
            [as_token(event) for event in events],
            started,
            preempted,
            running,
            len(self.open) - running,
            pool.num_used if pool else 0,
        )

    def start(self, request: Request, time: float) -> Started:
        del self.waiting[request.request_id]
        self.preemptions[request.request_id] = 0
        return Started(request.request_id, time, request.num_cached_tokens)

    def was_preempted(self, request_id: str) -> bool:
        """Whether a request has been preempted since this was last asked."""
        before, now = self.preemptions[request_id], self.open[request_id].num_preemptions
        self.preemptions[request_id] = now
        return now > before

    def forget(self, request_id: str) -> None:
        for table in (self.open, self.waiting, self.preemptions):
            table.pop(request_id, None)

    def look(self, call: int) -> Sight:
        """What the engine holds now."""
        pool = pool_of(self.core)
        held = [
            Held(
                r.request_id, state_of(r), r.num_computed_tokens, r.block_table if pool else [],
                len(r.host_blocks), r.num_preemptions,
            )
            for r in self.open.values()
        ]  # fmt: skip
        if pool is None:
            return Sight(call, held, 0, 0)
        taken = {block for one in held for block in one.block_ids}
        cached = len(pool.block_of) - sum(pool.hash_of[block] is not None for block in taken)
        return Sight(call, held, pool.num_used, cached)

    def describe(self, dtype: str, device: str, max_position: int, seconds: float) -> Ready:
        """What the API has to know of this engine."""
        scheduler, pool = getattr(self.core, "scheduler", None), pool_of(self.core)
        limit = getattr(scheduler or self.core, "max_model_len", None)
        return Ready(
            self.engine.rung,
            POLICY_NAMES.get(type(scheduler.policy), "own") if scheduler else "fcfs",
            dtype,
            device,
            self.engine.vocab_size,
            limit or max_position,
            self.max_num_seqs,
            pool.num_blocks if pool else 0,
            pool.block_size if pool else 0,
            seconds,
        )


def slots(core) -> int:
    """How many requests an engine runs at once."""
    scheduler = getattr(core, "scheduler", None)
    return scheduler.max_num_seqs if scheduler else getattr(core, "batch_size", 1)


def pool_of(core):
    """The block pool of an engine; None on a rung without one."""
    return getattr(getattr(core, "scheduler", core), "pool", None)


def has_started(request: Request) -> bool:
    """Whether it runs or has run: on the first rung only its tokens tell. One that ended without
    a token (by its deadline, say) has not."""
    return request.state in (State.RUNNING, State.PREEMPTED) or bool(request.output_token_ids)


def state_of(request: Request) -> str:
    """As `Held` tells it. The first rung leaves `state` alone, and tells it by its tokens."""
    started = request.state is State.WAITING and request.output_token_ids
    return "running" if started else request.state.name.lower()


def as_token(event) -> Token:
    logprobs = getattr(event, "logprobs", None)
    if logprobs is not None:
        logprobs = TokenLogprobs(logprobs.logprob, logprobs.rank, list(logprobs.alternatives))
    return Token(
        event.request_id, event.token_id, event.finish_reason, event.time, logprobs,
        getattr(event, "error", None),
    )  # fmt: skip
