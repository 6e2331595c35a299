"""Chat, agents and a batch job on one real engine, for notebook 08.

Requests come in a given *step* of the engine, not at a time: so every machine sees the same
schedule, whatever it is, and only the seconds differ.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from labkit import rungs
from labkit.engine.policies import FCFS, Priority
from labkit.engine.request import Request
from labkit.measure.bench.drive import percentile
from labkit.measure.metrics import latency
from labkit.measure.schedule import Schedule, watched

Asked = tuple[int, Request]  # the step in which it comes, and the request
CHAT = "What is a good name for a quiet boat?"
BATCH = "Write a long and detailed story about a lighthouse, a storm and an old sailor."
AGENT = "You are given the notes of a meeting. Find what was decided. "


class WithoutPreemption(Priority):
    """The most urgent first, but whoever runs is left alone until it has ended."""

    def may_preempt(self, waiting: Request, running: Request) -> bool:
        return False


@dataclass
class Served:
    """One run. Times are seconds from its first step; steps are counted from 0."""

    schedule: Schedule
    requests: dict[str, Request] = field(default_factory=dict)
    came_in: dict[str, int] = field(default_factory=dict)  # the step
    token_steps: dict[str, list[int]] = field(default_factory=dict)

    def _token_times(self, name: str) -> list[float]:
        return [self.schedule.steps[step].end for step in self.token_steps[name]]

    def latencies(self, tenant: str) -> list:
        """A `Latency` for each request of a tenant that has a token."""
        names = [name for name, r in self.requests.items() if r.tenant == tenant]
        came = {name: self.schedule.steps[self.came_in[name]].begin for name in names}
        return [latency(came[n], self._token_times(n)) for n in names if self.token_steps[n]]

    def ttft(self, tenant: str, percent: float) -> float:
        """Seconds, by nearest rank."""
        return percentile([one.ttft for one in self.latencies(tenant)], percent)

    def steps_to_first_token(self, tenant: str) -> list[int]:
        """For each request of a tenant: 1 is a token out of the very step that it came in."""
        return [
            self.token_steps[name][0] - self.came_in[name] + 1
            for name, request in self.requests.items()
            if request.tenant == tenant
        ]

    @property
    def seconds(self) -> float:
        return self.schedule.steps[-1].end

    @property
    def step_seconds(self) -> float:
        """The median."""
        return median(step.end - step.begin for step in self.schedule.steps)

    @property
    def num_computed(self) -> int:
        """Tokens that went through the model."""
        return sum(step.num_tokens for step in self.schedule.steps)

    @property
    def num_preemptions(self) -> int:
        return sum(request.num_preemptions for request in self.requests.values())

    @property
    def num_swaps(self) -> int:
        return sum(request.num_swaps for request in self.requests.values())

    @property
    def num_blocks_copied(self) -> int:
        """To the host and back."""
        return sum(sum(step.swapped) for step in self.schedule.steps)

    @property
    def output(self) -> dict[str, list[int]]:
        return {name: request.output_token_ids for name, request in self.requests.items()}

    def on_time(self, slo_s: float, tenant: str = "chat") -> int:
        """How many requests of a tenant had their first token within `slo_s`."""
        return sum(one.ttft <= slo_s for one in self.latencies(tenant))

    def goodput(self, slo_s: float) -> float:
        """Requests per second that met their SLO: chat's is `slo_s`, the others have none."""
        others = sum(request.tenant != "chat" for request in self.requests.values())
        return (self.on_time(slo_s) + others) / self.seconds


def serve(engine, asked: Iterable[Asked]) -> Served:
    """Puts each request in line as its step begins, and steps the engine until all have ended."""
    line, number = sorted(asked, key=lambda one: one[0]), 0
    with watched(engine) as schedule:
        served = Served(schedule)
        while line or engine.has_unfinished():
            while line and (line[0][0] <= number or not engine.has_unfinished()):
                request = line.pop(0)[1]
                request.arrival = engine.clock()
                served.requests[request.request_id] = request
                served.came_in[request.request_id] = number
                served.token_steps[request.request_id] = []
                engine.add(request)
            for event in engine.step():
                if event.token_id is not None:
                    served.token_steps[event.request_id].append(number)
            number += 1
    return served


def make_engine(
    loaded,
    policy: FCFS,
    scheduler: Callable | None = None,
    books: Callable | None = None,
    **options,
):
    """The preemptive rung, without a prefix cache; `scheduler` and `books` are classes, a
    learner's own may stand in. Two tokens are computed first: much is prepared only once."""
    options = {"preemption": "recompute", "prefix_caching": False} | options
    own = scheduler is not None
    engine = rungs.make("preemptive", loaded, policy="fcfs" if own else policy, **options)
    if own:
        made = engine.scheduler
        engine.scheduler = scheduler(
            made.pool, made.max_num_batched_tokens, made.max_num_seqs, made.max_model_len,
            policy=policy, preemption=made.preemption, host=made.books.host,
        )  # fmt: skip
    if books is not None:
        engine.scheduler.books = books(engine.scheduler.pool, engine.scheduler.books.host)
    warm = Request("warm-up", loaded.encode_chat(AGENT * 4), max_tokens=2, ignore_eos=True)
    engine.add(warm)
    while engine.has_unfinished():
        engine.step()
    return engine


def one(loaded, name: str, text: str, max_tokens: int, priority: int) -> Request:
    return Request(
        name, loaded.encode_chat(text), max_tokens, ignore_eos=True, priority=priority,
        tenant=name.split("-")[0],
    )  # fmt: skip


def three_classes(loaded, num_batch: int) -> list[Asked]:
    """Six chat requests and two agents over 40 steps, and `num_batch` of a batch job at once.

    Chat: priority 0, 6 tokens out. Agents: 1, a prompt of some 150 tokens, 4 out. Batch: 2,
    24 tokens out, all there in step 0.
    """
    asked = [(0, one(loaded, f"batch-{i}", BATCH, 24, 2)) for i in range(num_batch)]
    asked += [(3 + 8 * i, one(loaded, f"chat-{i}", CHAT, 6, 0)) for i in range(6)]
    asked += [(10 + 20 * i, one(loaded, f"agent-{i}", AGENT * 9, 4, 1)) for i in range(2)]
    return asked


def little_memory(loaded) -> list[Asked]:
    """Three batch requests that fill a pool of 14 blocks of 16 tokens, and chat that comes."""
    asked = [(0, one(loaded, f"batch-{i}", BATCH, 28, 2)) for i in range(3)]
    return asked + [(6 + 10 * i, one(loaded, f"chat-{i}", CHAT, 6, 0)) for i in range(2)]


def behind_a_long_one(loaded) -> list[Asked]:
    """One long answer, and a chat request that comes in step 5."""
    long, chat = one(loaded, "long", BATCH, 24, 2), one(loaded, "chat", CHAT, 6, 0)
    return [(0, long), (5, chat)]


def differing(one: Served, other: Served) -> Sequence[str]:
    """The requests whose tokens are not the same in two runs."""
    return [name for name, tokens in one.output.items() if other.output[name] != tokens]


def tell(schedule: Schedule) -> None:
    """Prints a line for each step: the tokens of each request, and who lost its place."""
    for number, step in enumerate(schedule.steps):
        tokens = "  ".join(f"{part.request_id} {part.num_tokens}" for part in step.parts)
        lost = "   preempted: " + ", ".join(step.preempted) if step.preempted else ""
        print(f"step {number}: {tokens or 'nothing'}{lost}")
