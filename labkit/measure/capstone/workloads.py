"""What arrives in the capstone: chat, agents and batch jobs, each with its own promise."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from labkit.measure.simulate import traces
from labkit.measure.simulate.requests import Arrival, at_rate
from labkit.measure.simulate.synthetic import synthetic
from labkit.measure.slo import PRESETS, SLO

SECONDS = 40.0
CHAT_PER_S, AGENTS_PER_S = 32.0, 6.0
NUM_JOBS, JOB_REQUESTS = 2, 320
JOB_GAP_S = 0.005  # between two requests of a job: it sends them all at once, nearly


@dataclass(frozen=True)
class TrafficClass:
    """One kind of traffic. `share` of its requests must meet `slo`; a lower priority is more
    urgent. Its limit on E2E is the deadline that its requests carry."""

    name: str
    priority: int
    slo: SLO
    share: float
    about: str


INTERACTIVE, SERVER = PRESETS["llama3.1-8b-interactive"].slo, PRESETS["llama3.1-8b"].slo
CLASSES = (
    TrafficClass(
        "chat", 0, SLO(ttft=INTERACTIVE.ttft, tpot=INTERACTIVE.tpot, e2e=40.0), 0.99,
        "people who read along: MLPerf's interactive limits for Llama 3.1 8B",
    ),
    TrafficClass(
        "agent", 1, SLO(ttft=SERVER.ttft, tpot=SERVER.tpot, e2e=30.0), 0.95,
        "code assistants: long prompts, short answers, in bursts; MLPerf's server limits",
    ),
    TrafficClass(
        "batch", 2, SLO(e2e=45.0), 0.95, "jobs of many requests at once: done when all are done"
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Workload:
    """Requests in order of arrival; the tenant of each is the name of its class."""

    name: str
    arrivals: tuple[Arrival, ...]
    seconds: float = SECONDS  # for which cards are rented, at least
    classes: tuple[TrafficClass, ...] = CLASSES

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same requests and promises, on every machine."""
        text = repr((self.arrivals, self.seconds, self.classes))
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def make_workload(
    seed: int = 0, chat_trace: Path | None = None, agent_trace: Path | None = None
) -> Workload:
    """40 s of the three classes, 2,160 requests.

    Lengths and gaps are like those of Azure's traces `conv` (chat and batch) and `code` (agents),
    out of `seed`; with the path of a real trace, its first rows instead. Either is stretched to
    32 chat requests and 6 of agents a second; two jobs of 320 come at once each. Raises TraceError
    for a file that is no trace.
    """
    num_chat, num_agents = round(CHAT_PER_S * SECONDS), round(AGENTS_PER_S * SECONDS)
    num_batch = NUM_JOBS * JOB_REQUESTS
    conv = rows("conv", chat_trace, num_chat + num_batch, seed)
    code = rows("code", agent_trace, num_agents, seed)
    chat, agent, batch = CLASSES
    arrivals = [
        *belonging(chat, at_rate(conv[:num_chat], CHAT_PER_S)),
        *belonging(agent, at_rate(code, AGENTS_PER_S)),
        *belonging(batch, jobs(conv[num_chat:])),
    ]
    files = [file.name for file in (chat_trace, agent_trace) if file]
    name = f"three classes, {' and '.join(files) or 'synthetic'}, seed {seed}"
    return Workload(name, tuple(sorted(arrivals, key=lambda arrival: arrival.time)))


def rows(kind: str, trace: Path | None, count: int, seed: int) -> list[Arrival]:
    """`count` requests of a trace, or like those of one. TraceError when it has fewer."""
    if trace is None:
        return list(synthetic(kind, count, seed=seed))
    found = list(islice(traces.read(trace), count))
    if len(found) < count:
        raise traces.TraceError(
            f"trace {trace} has {len(found)} requests, {count} are needed; take a longer one"
        )
    return found


def jobs(lengths: list[Arrival]) -> Iterator[Arrival]:
    """The same requests as jobs, evenly over the time."""
    for number, arrival in enumerate(lengths):
        job, place = divmod(number, JOB_REQUESTS)
        yield arrival._replace(time=(job + 0.5) * SECONDS / NUM_JOBS + place * JOB_GAP_S)


def belonging(kind: TrafficClass, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    """They get the name, the priority and the deadline of their class."""
    for number, arrival in enumerate(arrivals):
        yield arrival._replace(
            priority=kind.priority,
            tenant=kind.name,
            deadline=arrival.time + kind.slo.e2e,
            request_id=f"{kind.name}-{number}",
        )
