"""What a scheduler did, step by step: played on a virtual clock, or watched in a real engine.

Neither needs to know the scheduler's class: a learner's own, out of `use("06.1")`, will do. It
must have `add`, `plan`, `commit`, `known`, `running` and `pool`, as `labkit.engine.scheduler` has.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from labkit.engine.request import Request

IDLE_STEPS = 3  # so many in a row without a token, and nobody else to come: nothing will happen
MOST_ROUNDS = 5  # times that each token may be computed, before preemption counts as endless


class Part(NamedTuple):
    """The tokens of one request in one step: `num_tokens` from position `start` on."""

    request_id: str
    kind: Literal["prefill", "decode"]
    start: int
    num_tokens: int


@dataclass(frozen=True)
class Step:
    """One step, from `begin` to `end` in seconds.

    `waiting` are in line while it is computed; `preempted` lost their place in it, `resumed` got
    it back, `finished` have ended with it. `blocks` are the block tables while it is computed, of
    everybody who holds any; `num_blocks` the size of the pool. `swapped` counts the blocks copied
    to the host and from it.
    """

    begin: float
    end: float
    parts: tuple[Part, ...] = ()
    waiting: tuple[str, ...] = ()
    preempted: tuple[str, ...] = ()
    resumed: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    blocks: dict[str, tuple[int, ...]] = field(default_factory=dict)
    num_blocks: int = 0
    swapped: tuple[int, int] = (0, 0)

    @property
    def num_tokens(self) -> int:
        """Tokens that the step computes."""
        return sum(part.num_tokens for part in self.parts)

    @property
    def num_used(self) -> int:
        """Blocks in use; a shared one counts once."""
        return len({block for table in self.blocks.values() for block in table})


@dataclass
class Schedule:
    """Steps in order. `arrivals` and `tenants` are by request id, in order of arrival.

    `reasons` says why requests ended, `refused` why some were never taken, `budget` how many
    tokens a step may have. `trouble` says in words why a schedule stops before its time; it is
    empty otherwise.
    """

    steps: list[Step] = field(default_factory=list)
    arrivals: dict[str, float] = field(default_factory=dict)
    tenants: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    budget: int | None = None
    trouble: str = ""


class MadeUp(NamedTuple):
    """A sampled token, as `Scheduler.commit` reads it."""

    token_id: int
    logprobs: None = None
    error: str | None = None


def play(
    scheduler,
    requests: Iterable[Request],
    step_seconds: Callable[[int], float] = lambda num_tokens: 1.0,
    token: Callable[[Request], int] = lambda request: 0,
) -> Schedule:
    """Runs a scheduler without a model until all `requests` have ended, on a virtual clock.

    A request enters before the first step that begins at its `arrival` or later. A step takes
    `step_seconds(its tokens)`, above 0 (else ValueError); `token(request)` is the next token.
    Requests are used up by it: ValueError for one that was. Whatever the scheduler does, unless
    it never returns, a schedule comes out: when it raises, plans nothing although requests are
    open, or computes the same tokens for ever, `trouble` says so.
    """
    line = sorted(requests, key=lambda request: request.arrival)
    for request in line:
        if request.output_token_ids or request.num_computed_tokens or request.finish_reason:
            raise ValueError(f"request {request.request_id!r} was served before; make a new one")
    recorder = Recorder(scheduler)
    most_steps = 100 + MOST_ROUNDS * sum(r.num_prompt_tokens + r.max_tokens for r in line)
    now, num_idle = 0.0, 0
    while line or scheduler.known:
        if not scheduler.known:
            now = max(now, line[0].arrival)
        try:
            while line and line[0].arrival <= now:
                recorder.add(line.pop(0))
            if not scheduler.known:
                continue
            step = play_step(scheduler, recorder, now, step_seconds, token)
        except Stopped as stopped:
            recorder.stop(str(stopped))
            break
        num_idle = 0 if step.num_tokens > 0 or step.finished else num_idle + 1
        if num_idle >= IDLE_STEPS and not (line or soon(scheduler, now)):
            recorder.stop(f"{IDLE_STEPS} steps in a row compute nothing")
            break
        if len(recorder.schedule.steps) >= most_steps:
            recorder.stop(f"{most_steps} steps are more than these requests can need")
            break
        now = step.end
    return recorder.schedule


class Stopped(Exception):
    """A scheduler can't go on; the text says why."""


@contextmanager
def told(doing: str) -> Iterator[None]:
    """Whatever a scheduler raises (a learner's may raise anything) becomes Stopped."""
    try:
        yield
    except (Exception, SystemExit) as error:
        raise Stopped(f"{doing} raised {type(error).__name__}: {error}") from error


def play_step(scheduler, recorder: "Recorder", now: float, step_seconds, token) -> Step:
    """Plans a step, takes the time for it, commits it. Raises Stopped as the scheduler fails."""
    with told("plan"):
        plan = scheduler.plan(now)
    if not hasattr(plan, "chunks"):
        raise Stopped(f"plan gave {plan!r}; a StepPlan is needed")
    with told("what plan gave can't be read: it"):
        recorder.planned(plan, now)
        num_tokens = sum(chunk.num_tokens for chunk in plan.chunks.values())
        sampling = [chunk.request for chunk in plan.chunks.values() if chunk.samples]
    duration = step_seconds(num_tokens)
    if not duration > 0:
        raise ValueError(f"step_seconds gave {duration!r}; a step must take time, give more than 0")
    sampled = [MadeUp(token(request)) for request in sampling]
    with told("commit"):
        scheduler.commit(plan, sampled, now + duration)
    return recorder.computed(now + duration)


def soon(scheduler, now: float) -> bool:
    """Whether an open request has a deadline to come: time alone may change something."""
    return any(r.deadline is not None and r.deadline >= now for r in scheduler.known.values())


@contextmanager
def watched(engine) -> Iterator[Schedule]:
    """Writes down what a `ContinuousEngine` does inside the `with`, on its own clock.

    Times begin at 0 with the first step; who came earlier has arrived at 0 or before.
    """
    scheduler, recorder = engine.scheduler, Recorder(engine.scheduler)
    started = engine.clock()
    for request in scheduler.known.values():
        recorder.came(request, started)
    add, plan, commit, fail = scheduler.add, scheduler.plan, scheduler.commit, scheduler.fail

    def noting_add(request):
        add(request)
        recorder.came(request, engine.clock())

    def noting_plan(now):
        made = plan(now)
        recorder.planned(made, now)
        return made

    def noting_commit(made, sampled, now):
        events = commit(made, sampled, now)
        recorder.computed(now)
        return events

    def noting_fail(made, reason, now):
        events = fail(made, reason, now)
        recorder.computed(now)
        return events

    mine = {"add": noting_add, "plan": noting_plan, "commit": noting_commit, "fail": noting_fail}
    vars(scheduler).update(mine)
    try:
        yield recorder.schedule
    finally:
        for name in mine:
            del vars(scheduler)[name]
        recorder.from_0()


class Recorder:
    """Turns plans into the steps of `schedule`: `planned` when one is made, `computed` after."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.schedule = Schedule(budget=getattr(scheduler, "max_num_batched_tokens", None))
        self.requests: dict[str, Request] = {}  # seen and not ended
        self.away: set[str] = set()  # preempted, not resumed yet
        self.open: dict = {}  # the fields of the step under way

    def add(self, request: Request) -> None:
        """Puts it in line; one that is refused is kept in `refused`."""
        self.note(request, request.arrival)
        try:
            with told("add"):
                self.scheduler.add(request)
        except Stopped as stopped:
            if not isinstance(stopped.__cause__, ValueError):
                raise
            self.schedule.refused[request.request_id] = str(stopped.__cause__)
        else:
            self.requests[request.request_id] = request

    def came(self, request: Request, now: float) -> None:
        self.note(request, now)
        self.requests[request.request_id] = request

    def note(self, request: Request, now: float) -> None:
        self.schedule.arrivals[request.request_id] = now
        self.schedule.tenants[request.request_id] = request.tenant

    def planned(self, plan, now: float) -> None:
        known, running = self.scheduler.known, self.scheduler.running
        preempted = [request.request_id for request in plan.preempted]
        self.away |= {*preempted}
        resumed = [name for name in running if name in self.away]
        self.away -= {*resumed}
        self.open = {
            "begin": now,
            "parts": tuple(map(part_of, plan.chunks.values())),
            "waiting": tuple(name for name in known if name not in running),
            "preempted": tuple(dict.fromkeys(preempted)),
            "resumed": tuple(resumed),
            "blocks": {n: tuple(r.block_table) for n, r in known.items() if r.block_table},
            "num_blocks": self.scheduler.pool.num_blocks,
            "swapped": (len(plan.swap_out), len(plan.swap_in)),
        }

    def computed(self, now: float) -> Step:
        ended = [r for name, r in self.requests.items() if name not in self.scheduler.known]
        for request in ended:
            del self.requests[request.request_id]
            self.away.discard(request.request_id)
            self.schedule.reasons[request.request_id] = str(request.finish_reason)
        finished = tuple(request.request_id for request in ended)
        step = Step(end=now, finished=finished, **self.open)
        self.schedule.steps.append(step)
        return step

    def stop(self, why: str) -> None:
        """The scheduler gets no further, and says so."""
        names = ", ".join([*self.requests][:5]) + (", ..." if len(self.requests) > 5 else "")
        self.schedule.trouble = (
            f"stopped after step {len(self.schedule.steps)}: {why}; "
            f"unfinished: {names or 'none'}"
        )

    def from_0(self) -> None:
        """Shifts all times, so that the first step begins at 0."""
        steps, arrivals = self.schedule.steps, self.schedule.arrivals
        if not steps:
            return
        zero = steps[0].begin
        for i, step in enumerate(steps):
            fields = vars(step) | {"begin": step.begin - zero, "end": step.end - zero}
            steps[i] = Step(**fields)
        for name, when in arrivals.items():
            arrivals[name] = when - zero


def part_of(chunk) -> Part:
    """A chunk in words: who computes a token of its own making decodes, all else is prefill."""
    request = chunk.request
    generates = chunk.num_tokens == 1 and chunk.start >= request.num_prompt_tokens
    return Part(
        request.request_id, "decode" if generates else "prefill", chunk.start, chunk.num_tokens
    )
