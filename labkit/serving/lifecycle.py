"""The life of a request, from the client's connection to the engine's blocks, in one place.

A *ticket* is what one client asked for: `n` answers to one or several prompts. Each answer is a
*choice*: one request of the engine. The registry holds all that are open, brings them what the
engine says, and remembers those that ended last.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from labkit.answers import Answer, Output, Piece
from labkit.model.sampling_params import SamplingParams
from labkit.serving.messages import Held, Sight, Step, Token

MOST_REMEMBERED = 256  # tickets that have ended


@dataclass(frozen=True)
class Asked:
    """What a client asked for, checked and in tokens."""

    endpoint: str  # "chat" or "completions"
    prompts: list[list[int]]
    params: SamplingParams
    stream: bool = False
    include_usage: bool = False
    label: str = ""  # the client's own name for it; need not be unique
    tenant: str = ""
    priority: int = 0
    max_tokens: int | None = None  # None: as many as fit
    deadline_s: float | None = None  # from its arrival
    cache_salt: str = ""


class Choice(Answer):
    """One answer, and its times: seconds of `time.monotonic`."""

    def __init__(self, ticket: "Ticket", request_id: str, index: int, prompt: list[int], tokenizer):
        pieces = ticket.pieces if ticket.asked.stream else deque(maxlen=0)
        super().__init__(request_id, ticket.asked.params, tokenizer, pieces, ticket.abort, index)
        self.ticket, self.num_prompt_tokens = ticket, len(prompt)
        self.started: float | None = None
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.num_cached_tokens = self.num_preemptions = 0
        self.held: Held | None = None  # as the engine told when it was last asked

        self.num_tokens = 0

    def take(self, event: Token) -> None:
        """A `Token` has the fields of a `StepEvent`."""
        self.num_tokens += self.is_open and event.token_id is not None
        super().take(event)

    def forget_text(self) -> None:
        self.output = Output(finish_reason=self.output.finish_reason, error=self.output.error)
        self.stream = None


class Ticket:
    """One client's request. `abort` ends requests of the engine by id, and waits for nothing."""

    def __init__(
        self, ticket_id: str, asked: Asked, tokenizer, abort: Callable[..., object],
        client: str = "", arrival: float | None = None,
    ):  # fmt: skip
        self.id, self.asked, self.client, self.abort = ticket_id, asked, client, abort
        self.arrival = time.monotonic() if arrival is None else arrival
        self.created = int(time.time())
        self.pieces: deque[Piece] = deque()  # made, and not sent yet
        self.wake = asyncio.Event()  # there are pieces, or it is over
        self.ended: float | None = None
        self.dropped: str | None = None  # why its connection was cut
        self.cut: Callable[[], None] = lambda: None  # cuts its connection
        self.is_stuck = False  # its client takes nothing at the moment
        self.let_go = False  # nobody waits for its text
        self.is_accepted = False  # the engine has all its prompts in line
        self.code: str | None = None  # why it was ended from this side, as clients are told
        n = asked.params.n
        self.choices = [
            Choice(self, self.request_id(i // n, i % n), i, asked.prompts[i // n], tokenizer)
            for i in range(n * len(asked.prompts))
        ]

    def request_id(self, prompt: int, answer: int = 0) -> str:
        """The engine's name for an answer: as `Engine.add` makes it."""
        name = f"{self.id}.{prompt}" if prompt else self.id
        return f"{name}/{answer}" if answer else name

    @property
    def deadline(self) -> float | None:
        return None if self.asked.deadline_s is None else self.arrival + self.asked.deadline_s

    @property
    def is_open(self) -> bool:
        return any(choice.is_open for choice in self.choices)

    # ---- sums over its choices; a prompt counts once, however many answers it has

    @property
    def num_prompt_tokens(self) -> int:
        return sum(choice.num_prompt_tokens for choice in self.choices[:: self.asked.params.n])

    @property
    def num_cached_tokens(self) -> int:
        return sum(choice.num_cached_tokens for choice in self.choices[:: self.asked.params.n])

    @property
    def num_tokens(self) -> int:
        return sum(choice.num_tokens for choice in self.choices)

    @property
    def num_preemptions(self) -> int:
        return sum(choice.num_preemptions for choice in self.choices)

    @property
    def ttft(self) -> float | None:
        """Seconds from its arrival to the first token of any of its answers."""
        firsts = [choice.first_token for choice in self.choices if choice.first_token]
        return min(firsts) - self.arrival if firsts else None

    @property
    def finish_reasons(self) -> str:
        return ",".join(dict.fromkeys(str(choice.output.finish_reason) for choice in self.choices))

    @property
    def held(self) -> list[Held]:
        return [choice.held for choice in self.choices if choice.is_open and choice.held]

    @property
    def block_ids(self) -> list[int]:
        return [*dict.fromkeys(block for held in self.held for block in held.block_ids)]

    @property
    def failure(self) -> Choice | None:
        """The first answer that ended badly: one that the client can't use."""
        return next((c for c in self.choices if failed(c)), None)

    @property
    def state(self) -> str:
        """waiting, running, preempted or finished: of the open answer that is furthest ahead."""
        if not self.is_open:
            return "finished"
        states = {state_of(choice) for choice in self.choices if choice.is_open}
        return next(s for s in ("running", "preempted", "waiting") if s in states)

    async def finished(self) -> None:
        """Waits until all answers have ended, or one of them badly."""
        while self.is_open and self.failure is None:
            await self.wake.wait()
            self.wake.clear()


    def forget_text(self) -> None:
        """It is over and its answer is sent: what is told of it stays, its text does not."""
        self.pieces.clear()
        for choice in self.choices:
            choice.forget_text()


def failed(choice: Choice) -> bool:
    """Whether there is no answer: past a deadline, what was made in time is one."""
    reason = choice.output.finish_reason
    return reason in ("error", "abort") or reason == "deadline" and choice.num_tokens == 0


def state_of(choice: Choice) -> str:
    if choice.started is None:
        return "waiting"
    return choice.held.state if choice.held else "running"


class Registry:
    """All open tickets, by id; their choices, by the engine's id; the last that ended.

    `observer` is told of what happens (metrics, logs): `started`, `token`, `preempted` and `ended`
    for a choice, `closed` for a ticket, `stepped` for a step. A streamed answer of which more than
    `max_unsent_tokens` wait for their client to read is dropped: it ends, and its connection is
    cut. Pieces that wait for this process, which may have been busy or suspended, are not its
    client's fault.
    """

    def __init__(self, observer, max_unsent_tokens: int = 512, clock=time.monotonic):
        self.observer, self.max_unsent_tokens, self.clock = observer, max_unsent_tokens, clock
        self.tickets: dict[str, Ticket] = {}
        self.choices: dict[str, Choice] = {}
        self.ended: dict[str, Ticket] = {}

    def open(self, ticket: Ticket) -> None:
        self.tickets[ticket.id] = ticket
        self.choices |= {choice.request_id: choice for choice in ticket.choices}

    def withdraw(self, ticket: Ticket) -> None:
        """A ticket that never got in line as a whole: as if it had not come."""
        self.tickets.pop(ticket.id, None)
        for choice in ticket.choices:
            if self.choices.pop(choice.request_id, None) and choice.started is not None:
                choice.end("abort", "the request was refused")  # it ran already: counted as begun
                self.observer.ended(choice, self.clock())
        ticket.abort(*(choice.request_id for choice in ticket.choices))

    def find(self, ticket_id: str) -> Ticket | None:
        return self.tickets.get(ticket_id) or self.ended.get(ticket_id)

    def on_step(self, step: Step) -> None:
        """Brings everybody what a step of the engine has made. The clock is read once.

        `step.started`: the choice notes `started` (the start's time) and `num_cached_tokens`.
        `step.preempted` (ids): one more in `num_preemptions`. `step.tokens`: the choice takes the
        token. If it has a `token_id` (the last event of a request may have none) the observer is
        told of it *before* the choice notes its times: `first_token`, once, and `last_token`. A
        choice that is over now is closed (`close_choice`). Ids that aren't in `choices` any more
        are passed over. At the end each ticket that took one of `step.tokens` is woken, once, and
        the observer is told of the step.
        """
        now, touched = self.clock(), {}
        for start in step.started:
            if choice := self.choices.get(start.request_id):
                choice.started, choice.num_cached_tokens = start.time, start.num_cached_tokens
                self.observer.started(choice)
        for request_id in step.preempted:
            if choice := self.choices.get(request_id):
                choice.num_preemptions += 1
                self.observer.preempted(choice)
        for token in step.tokens:
            choice = self.choices.get(token.request_id)
            if choice is None:  # ended on this side: by a stop string, or its client left
                continue
            choice.take(token)
            if token.token_id is not None:
                self.observer.token(choice, now)
                choice.first_token = choice.first_token or now
                choice.last_token = now
            touched[choice.ticket.id] = choice.ticket
            if not choice.is_open:
                self.close_choice(choice)
        for ticket in touched.values():
            self.wake(ticket)
        self.observer.stepped(step)

    def wake(self, ticket: Ticket) -> None:
        if ticket.is_stuck and len(ticket.pieces) > self.max_unsent_tokens:
            self.drop(ticket, f"{len(ticket.pieces)} tokens wait for a client that doesn't read")
        ticket.wake.set()

    def drop(self, ticket: Ticket, reason: str) -> None:
        """Ends a ticket whose client doesn't read, and cuts its connection."""
        ticket.dropped = reason
        self.end(ticket, "abort", reason)
        ticket.pieces.clear()
        ticket.cut()

    def end(self, ticket: Ticket, reason: str, error: str, code: str | None = None) -> None:
        """Ends what is still open of a ticket: here, and in the engine."""
        ticket.code = ticket.code or (code if ticket.is_open else None)
        for choice in ticket.choices:
            if choice.is_open:
                choice.end(reason, error)
                ticket.abort(choice.request_id)
                self.close_choice(choice)
        self.close(ticket)

    def end_all(self, error: str, code: str) -> None:
        """Ends all that the engine had accepted; who puts the others in line hears it there."""
        for ticket in [*self.tickets.values()]:
            if ticket.is_accepted:
                self.end(ticket, "error", error, code)

    def close_choice(self, choice: Choice) -> None:
        if self.choices.pop(choice.request_id, None):
            self.observer.ended(choice, self.clock())
        if not choice.ticket.is_open:
            self.close(choice.ticket)

    def close(self, ticket: Ticket) -> None:
        """Its last answer has ended: it is remembered for a while."""
        ticket.wake.set()
        if self.tickets.pop(ticket.id, None):
            ticket.ended = self.clock()
            self.observer.closed(ticket)
            if ticket.let_go:
                ticket.forget_text()
            self.ended[ticket.id] = ticket
            while len(self.ended) > MOST_REMEMBERED:
                del self.ended[next(iter(self.ended))]

    def note(self, sight: Sight) -> None:
        """Writes down what the engine holds for each choice."""
        for held in sight.requests:
            if choice := self.choices.get(held.request_id):
                choice.held = held
