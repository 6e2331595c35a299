"""A scheduler driven by hand, for the checks of notebook 06: no model, no torch, no clock."""

from typing import NamedTuple

from labkit.engine.blocks import BlockPool
from labkit.engine.plan import StepPlan
from labkit.engine.policies import FCFS
from labkit.engine.request import Request

STEPS, TABLES = "tokens of each step", "blocks held"  # what a check sees, by these names


class Sampled(NamedTuple):
    """Like `labkit.model.sampling.Sampled`, which needs torch."""

    token_id: int | None
    logprobs: None = None
    error: str | None = None


class NotingPolicy(FCFS):
    """First come, first served, and it writes down what the scheduler tells it."""

    def __init__(self):
        super().__init__()
        self.admitted, self.charged = [], []

    def admit(self, request, now):
        super().admit(request, now)
        self.admitted.append([request.request_id, now])

    def charge(self, request, num_prompt_tokens, num_output_tokens):
        self.charged.append([request.request_id, num_prompt_tokens, num_output_tokens])


class Drive:
    """A `Scheduler` of `part`, a module. The first request gets the tokens 1000, 1001, ..., the
    second 2000, 2001, ..., so that a token tells whose it is and which one."""

    def __init__(
        self, part, num_blocks=64, block_size=4, prefix_caching=False, host_blocks=0, **options
    ):
        self.pool = BlockPool(num_blocks, block_size, prefix_caching)
        host = BlockPool(host_blocks, block_size, False) if host_blocks else None
        self.scheduler = part.Scheduler(self.pool, host=host, **options)
        self.requests: dict[str, Request] = {}
        self.told: list[list] = []  # the events of all steps

    def add(self, name: str, prompt: int, max_tokens: int = 8, **fields) -> Request:
        """Puts a request in line whose prompt has so many tokens: 100, 101, ..."""
        request = Request(name, list(range(100, 100 + prompt)), max_tokens, **fields)
        request.prepare(frozenset(), default_seed=0)
        self.requests[name] = request
        self.scheduler.add(request)
        return request

    def compute(self, plan) -> list[Sampled]:
        """A result for each chunk that samples, in order: what the model would have given."""
        chunks = [chunk for chunk in plan.chunks.values() if chunk.samples]
        names = list(self.requests)
        return [Sampled(next_token(names, chunk.request)) for chunk in chunks]

    def step(self, now: float):
        """Plans, computes, commits; the plan, and the events in plain words."""
        plan = self.scheduler.plan(now)
        events = self.scheduler.commit(plan, self.compute(plan), now + 1)
        self.told += told(events)
        return plan

    def run(self, arrivals, num_steps: int) -> dict:
        """So many steps, a second each; `arrivals` are (step, name, prompt, max_tokens, fields).

        What was computed, in the words of `drawings.schedule`, and how requests ended.
        """
        steps = []
        for now in range(num_steps):
            for when, name, prompt, max_tokens, fields in arrivals:
                if when == now:
                    self.add(name, prompt, max_tokens, **fields)
            plan = self.step(float(now))
            steps.append(in_words(plan))
        ended = {name: r.finish_reason for name, r in self.requests.items() if r.finish_reason}
        return {STEPS: steps, "ended": ended}


def next_token(names: list[str], request: Request) -> int:
    return 1000 * (1 + names.index(request.request_id)) + len(request.output_token_ids)


def in_words(plan) -> dict:
    """{request: tokens}, or with the preempted beside it if there are any."""
    tokens = {name: chunk.num_tokens for name, chunk in plan.chunks.items()}
    if not plan.preempted:
        return tokens
    return {"tokens": tokens, "preempted": [request.request_id for request in plan.preempted]}


def told(events) -> list[list]:
    """Events as [request, token, reason, time]."""
    return [[e.request_id, e.token_id, e.finish_reason, e.time] for e in events]


def scene(part, script, requests, options) -> dict:
    """Everything that `commit` may have changed after `script`: a number of steps, or the name of
    one of the functions below. Requests are (name, prompt tokens, max_tokens, fields)."""
    policy = NotingPolicy()
    drive = Drive(part, policy=policy, max_num_batched_tokens=8, **options)
    for name, prompt, max_tokens, *fields in requests:
        drive.add(name, prompt, max_tokens, **dict(*fields))
    steps = [in_words(plan) for plan in played(drive, script)]
    scheduler = drive.scheduler
    return {
        "events": drive.told,
        STEPS: steps,
        "tokens computed": {n: r.num_computed_tokens for n, r in scheduler.known.items()},
        "output": {n: r.output_token_ids for n, r in drive.requests.items()},
        TABLES: {n: r.block_table for n, r in drive.requests.items()},
        "blocks in use": drive.pool.num_used,
        "blocks that can be found": len(drive.pool.block_of),
        "unfinished": list(scheduler.known),
        "waiting": list(policy.waiting),
        "charged for output": [[n, out] for n, prompt, out in policy.charged if not prompt],
    }


def played(drive, script) -> list:
    """The plans of a script. Steps are planned at 0, 1, 2, ... seconds and take one each."""
    if isinstance(script, int):
        return [drive.step(float(now)) for now in range(script)]
    return globals()[script](drive)


def chunk_first(drive):
    """A plan that lists the chunk that doesn't sample before the one that does."""
    plan = drive.scheduler.plan(0.0)
    plan.chunks = dict(reversed(plan.chunks.items()))
    drive.told += told(drive.scheduler.commit(plan, drive.compute(plan), 1.0))
    return [plan]


def abort_meanwhile(drive):
    """`a` is aborted while the step is computed, so its token comes too late."""
    plan = drive.scheduler.plan(0.0)
    results = drive.compute(plan)
    drive.scheduler.abort("a")
    drive.told += told(drive.scheduler.commit(plan, results, 1.0))
    return [plan, drive.step(1.0)]


def abort_and_come_again(drive):
    """`a` is aborted while the step is computed, and another request comes with its id."""
    plan = drive.scheduler.plan(0.0)
    results = drive.compute(plan)
    drive.scheduler.abort("a")
    drive.add("a", 2, 4)
    drive.told += told(drive.scheduler.commit(plan, results, 1.0))
    return [plan]


def abort_a_chunk(drive):
    """`a`, whose chunk stands first and doesn't sample, is aborted while the step is computed."""
    plan = drive.scheduler.plan(0.0)
    plan.chunks = dict(reversed(plan.chunks.items()))
    results = drive.compute(plan)
    drive.scheduler.abort("a")
    drive.told += told(drive.scheduler.commit(plan, results, 1.0))
    return [plan]


def no_token(drive):
    """The sampler has no token for `a`, only a reason."""
    plan = drive.scheduler.plan(0.0)
    results = [Sampled(None, error="all logits are NaN"), *drive.compute(plan)[1:]]
    drive.told += told(drive.scheduler.commit(plan, results, 1.0))
    drive.scheduler.policy.charged.clear()
    return [plan]


def books_and_pace(part):
    """A step in which a request came back from the host, and a step that computes nothing."""
    drive = Drive(part, host_blocks=4)
    pace, host = drive.scheduler.pace, drive.scheduler.books.host
    drive.scheduler.commit(StepPlan(8, 0.0), [], 3.0)
    steps_noted = [pace.steps]
    drive.add("a", 5)
    plan = drive.scheduler.plan(3.0)
    plan.swap_in += [(block, 9) for block in host.allocate(3)]
    drive.scheduler.commit(plan, drive.compute(plan), 5.0)
    return {
        "steps that the pace has seen": [*steps_noted, pace.steps],
        "tokens and seconds of the last": [pace.x, pace.y],
        "blocks free on the host": host.num_free,
    }


def broken(exercise_id: str, mistake: str):
    """The class or function of an exercise with one of its known mistakes in it: see it fail."""
    from labkit.workbook import cut, registry
    from labkit.workbook.parts import Hole

    item = registry.get(exercise_id)
    hole = Hole.of(item)
    (wrong,) = [known for known in item.mistakes if known.name == mistake]
    source = cut.splice(hole.source, {item.symbol: wrong.apply(hole.reference)})
    return getattr(cut.module_from(item.module, source), item.symbol.split(".")[0])


def talk(scheduler_class, scripts: dict[str, str], abort: tuple[int, str] | None = None) -> dict:
    """What each client is told when a model that knows `scripts` by heart runs on a scheduler.

    A token is a word. `abort` is (step, request): cancelled while that step is computed. If
    `commit` raises then, the engine is gone, and what it raised is told to everybody.
    """
    scheduler = scheduler_class(BlockPool(16, 4, prefix_caching=False))
    words = {name: text.split() for name, text in scripts.items()}
    vocabulary = sorted({word for text in words.values() for word in text})
    heard: dict[str, list[str]] = {name: [] for name in scripts}
    for name in scripts:
        scheduler.add(Request(name, [1, 2, 3], max_tokens=len(words[name])))
    for step in range(1, 20):
        plan = scheduler.plan(float(step))
        said = [words[c.request.request_id][len(c.request.output_token_ids)]
                for c in plan.chunks.values() if c.samples]  # fmt: skip
        if abort and abort[0] == step:
            scheduler.abort(abort[1])
        try:
            results = [Sampled(vocabulary.index(word)) for word in said]
            events = scheduler.commit(plan, results, step + 1.0)
        except Exception as error:
            return dict.fromkeys(scripts, f"the engine has ended: {type(error).__name__}")
        for event in events:
            heard[event.request_id].append(vocabulary[event.token_id])
        if not scheduler.has_unfinished():
            break
    return {name: " ".join(text) for name, text in heard.items()}
