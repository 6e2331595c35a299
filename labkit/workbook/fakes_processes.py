"""Stand-ins for notebook 07: who listens to a registry, an engine without a scheduler, a mailbox.

All of it is plain Python in virtual time: a check takes milliseconds and loads no torch.
"""

from collections import deque

from labkit.engine.request import Request, State, StepEvent
from labkit.measure.experiments.processes_virtual import Bytes
from labkit.model.sampling_params import SamplingParams
from labkit.serving.lifecycle import Asked, Ticket


class Listener:
    """What a `Registry` tells of, in words, in the order of the telling."""

    def __init__(self):
        self.heard: list[str] = []

    def started(self, choice):
        self.heard.append(f"started {choice.request_id}")

    def token(self, choice, now):
        first = "first token" if choice.first_token is None else "token"
        self.heard.append(f"{first} {choice.request_id}")

    def preempted(self, choice):
        self.heard.append(f"preempted {choice.request_id}")

    def ended(self, choice, now):
        self.heard.append(f"ended {choice.request_id}: {choice.output.finish_reason}")

    def closed(self, ticket):
        self.heard.append(f"closed {ticket.id}")

    def stepped(self, step):
        self.heard.append("stepped")


class Clock:
    """Seconds that pass when somebody looks: each reading is one later than the last."""

    def __init__(self):
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


class CountedWake:
    """Stands where a ticket has its `asyncio.Event`, and counts how often it is woken."""

    def __init__(self):
        self.count = 0

    def set(self) -> None:
        self.count += 1


def ticket(name: str, aborted: list[str], n: int = 1, stop: tuple[str, ...] = ()) -> Ticket:
    """A streamed request for `n` answers, arrived at 0; what it aborts is written down."""
    params = SamplingParams(n=n, stop=stop, max_tokens=8)
    asked = Asked("completions", [[65]], params, stream=True)
    found = Ticket(name, asked, Bytes(), lambda *ids: aborted.extend(ids), arrival=0.0)
    found.wake = CountedWake()
    return found


NOT_TOLD = {"arrival": None, "cache_salt": "", "priority": 0, "tenant": "", "deadline": None}


class EngineFails(Exception):
    """What a broken engine raises."""


class TinyEngine:
    """An engine with `num_slots` slots and no blocks: first come, first served, a token a step.

    It writes down what it is asked with. A prompt with a token above 255 is refused,
    and an id that is in line. When it is `broken` all it does is raise.
    """

    rung, vocab_size = "tiny", 256

    def __init__(self, num_slots: int, broken: bool = False):
        self.broken = broken
        self.core, self.batch_size, self.now = self, num_slots, 0.0
        self.known: dict[str, Request] = {}
        self.asked: list[dict] = []

    def clock(self) -> float:
        return self.now

    def add(self, prompt_token_ids, params, **fields) -> list[Request]:
        self.asked.append({"prompt": list(prompt_token_ids), "n": params.n, **NOT_TOLD, **fields})
        if max(prompt_token_ids) >= self.vocab_size:
            raise ValueError(f"token {max(prompt_token_ids)} is not below {self.vocab_size}")
        first = fields.pop("request_id")
        if self.broken:
            raise EngineFails("the GPU is gone")
        if first in self.known:
            raise ValueError(f"{first!r} is in line already")
        names = [f"{first}/{i}" if i else first for i in range(params.n)]
        made = [Request(name, prompt_token_ids, sampling=params, **fields) for name in names]
        self.known |= {request.request_id: request for request in made}
        return made

    def has_unfinished(self) -> bool:
        return bool(self.known)

    def step(self) -> list[StepEvent]:
        self.now += 1.0
        events = []
        for request in list(self.known.values())[: self.batch_size]:
            request.state = State.RUNNING
            request.append(65)
            events.append(StepEvent(request.request_id, 65, request.finish_reason, self.now))
            if request.finish_reason:
                del self.known[request.request_id]
        return events


class NeverEnds(Exception):
    """A loop goes on although it was told to stop, or has done far more than there is to do."""


class Mailbox:
    """Messages that come at given times, and a loop that has so much work: a step is a second.

    `arrivals` are (time, message, work): `work` steps more to do once it is handled, or None for
    all the work to be gone (an abort). `diary` is what happened: [time, what]. The last thing
    that comes is a `Stop`, if nothing else does; who goes on after it is interrupted.
    """

    MOST = 60  # calls of `receive` and steps: no right loop needs half of them

    def __init__(self, arrivals, stop):
        self.coming, self.stop = deque(arrivals), stop
        self.now, self.work, self.calls = 0.0, 0, 0
        self.diary: list[list] = []

    def note(self, what: str) -> None:
        self.calls += 1
        if self.calls > self.MOST:
            raise NeverEnds
        self.diary.append([self.now, what])

    def receive(self, wait: bool):
        self.calls += 1
        if self.calls > self.MOST:
            raise NeverEnds
        if wait and not (self.coming and self.coming[0][0] <= self.now):
            self.note("sleeps")
            if not self.coming:
                self.note("takes stop")
                return self.stop
            self.now = self.coming[0][0]
        if not (self.coming and self.coming[0][0] <= self.now):
            return None
        _, message, self.more = self.coming.popleft()
        self.note(f"takes {name_of(message)}")
        return message

    @property
    def has_work(self) -> bool:
        return self.work > 0

    def handle(self, message):
        """Answers all but an abort, which has no answer here."""
        self.work = 0 if self.more is None else self.work + self.more
        return None if self.more is None else f"answer to {name_of(message)}"

    def step(self):
        self.note("step" if self.work else "step with nothing to do")
        self.now, self.work = self.now + 1.0, max(self.work - 1, 0)
        return f"step ended at {self.now:g}"

    def send(self, message) -> None:
        self.note(f"sends {message}")


def name_of(message) -> str:
    """Its kind and its request: "add a"."""
    ids = getattr(message, "request_ids", [getattr(message, "request_id", "")])
    return f"{type(message).__name__.lower()} {' '.join(ids)}".strip()
