"""One request, from arrival to its last token, and the events that an engine gives back."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from reprlib import repr as short
from typing import TYPE_CHECKING, Literal

from labkit.model.sampling_params import SamplingParams

if TYPE_CHECKING:
    from labkit.model.sampling import Logprobs

FinishReason = Literal["stop", "length", "abort", "deadline", "error"]


class State(StrEnum):
    """WAITING → RUNNING ⇄ PREEMPTED → FINISHED."""

    WAITING = "waiting"  # holds no blocks
    RUNNING = "running"
    PREEMPTED = "preempted"  # waits again, after its blocks were taken from it
    FINISHED = "finished"


@dataclass
class Request:
    """What a client asked for and how far it has come.

    Invariants: `0 <= num_computed_tokens <= num_tokens`; at most `max_tokens` output tokens, and
    none after `finish_reason` is set. Only the engine that holds the request changes it.

    `sampling` says how tokens are chosen and when to end; without it the request is greedy and
    `max_tokens` and `ignore_eos` count. With it these two are taken from there.

    Raises ValueError for an empty prompt, `max_tokens` below 1, or a field of another kind: a
    request that an engine can't finish is refused before it takes a place in line.
    """

    request_id: str
    prompt_token_ids: list[int]
    max_tokens: int = 16
    ignore_eos: bool = False  # go on after an end-of-sequence token; benchmarks need equal lengths
    arrival: float = 0.0  # seconds, on the clock of whoever made the request
    output_token_ids: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    sampling: SamplingParams | None = None
    seed: int | None = None  # of the random draws; an engine chooses one where a client didn't
    stop_token_ids: frozenset[int] = frozenset()  # those that end this request; see `prepare`
    cache_salt: str = ""  # requests share cached blocks only with requests of the same salt
    copy_of: str | None = None  # n > 1: the id of the request whose prompt this one shares
    priority: int = 0  # lower runs first
    tenant: str = ""  # who pays: the fair policy shares between tenants
    deadline: float | None = None  # seconds, on the clock of `arrival`: it must have ended by then
    state: State = State.WAITING
    num_computed_tokens: int = 0  # keys and values of so many tokens are in the cache
    num_cached_tokens: int = 0  # of these, found in the prefix cache when it was admitted
    num_preemptions: int = 0
    num_swaps: int = 0  # so many of the preemptions copied its blocks to the host
    turn: int = 0  # its place among all requests of the policy, by when they came
    standing: float = 0.0  # its priority as it was admitted, with what it gained by waiting
    block_table: list[int] = field(default_factory=list)
    host_blocks: list[int] = field(default_factory=list)  # its computed tokens, while swapped out
    block_hashes: list[bytes] = field(default_factory=list)  # of its full blocks, as far as known
    error: str | None = None  # why it ended, with finish_reason "error" or "deadline"

    def __post_init__(self):
        for name, fine, needed in [
            ("request_id", isinstance(self.request_id, str), "a text"),
            ("cache_salt", isinstance(self.cache_salt, str), "a text"),
            ("tenant", isinstance(self.tenant, str), "a text"),
            ("priority", is_priority(self.priority), "a whole number from -1e9 to 1e9"),
            ("arrival", is_time(self.arrival), "a finite number of seconds"),
            ("deadline", self.deadline is None or is_time(self.deadline), "seconds, or None"),
        ]:
            if not fine:
                value = getattr(self, name)
                raise ValueError(f"{name} is {short(value)}; {needed} is needed")
        if self.sampling is None:
            self.sampling = SamplingParams(
                temperature=0.0, max_tokens=max(self.max_tokens, 1), ignore_eos=self.ignore_eos
            )
        else:
            self.max_tokens, self.ignore_eos = self.sampling.max_tokens, self.sampling.ignore_eos
        if not self.prompt_token_ids:
            raise ValueError(
                f"request {self.request_id!r}: the prompt has 0 tokens, at least 1 is needed; "
                "a model predicts the next token from the ones before"
            )
        if self.max_tokens < 1:
            raise ValueError(
                f"request {self.request_id!r}: max_tokens is {self.max_tokens}, "
                "at least 1 is needed; ask for one token or more"
            )

    @property
    def token_ids(self) -> list[int]:
        """Prompt and output so far, in order: what the model continues."""
        return self.prompt_token_ids + self.output_token_ids

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        """How many tokens are known: prompt and output so far."""
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def least_tokens(self) -> int:
        """How many tokens this request has at its end at the very least."""
        may_stop = self.sampling.stop or self.stop_token_ids
        least_output = self.sampling.min_tokens if may_stop else self.max_tokens
        return self.num_prompt_tokens + max(least_output, 1)

    def tokens_between(self, start: int, end: int) -> list[int]:
        """The known tokens at positions `start` to `end` (exclusive), without copying the rest."""
        split = self.num_prompt_tokens
        if start >= split:
            return self.output_token_ids[start - split : end - split]
        return self.prompt_token_ids[start:end] + self.output_token_ids[: max(end - split, 0)]

    def prepare(self, eos_token_ids: frozenset[int], default_seed: int) -> None:
        """Settles what the request leaves to its engine: which tokens end it, and its seed."""
        ends = frozenset() if self.ignore_eos else eos_token_ids
        self.stop_token_ids = ends | frozenset(self.sampling.stop_token_ids)
        if self.seed is None:
            self.seed = default_seed if self.sampling.seed is None else self.sampling.seed

    def append(self, token_id: int) -> None:
        """Takes the next output token, and ends with it where it has to."""
        self.output_token_ids.append(token_id)
        num_output = len(self.output_token_ids)
        if token_id in self.stop_token_ids and num_output > self.sampling.min_tokens:
            self.finish("stop")
        elif num_output == self.max_tokens:
            self.finish("length")

    def finish(self, reason: FinishReason, error: str | None = None) -> None:
        """Ends the request, once."""
        self.state, self.finish_reason, self.error = State.FINISHED, reason, error


def is_priority(value) -> bool:
    return type(value) is int and -(10**9) <= value <= 10**9


def is_time(value) -> bool:
    """Whether a value is a number of seconds that a clock may show."""
    return isinstance(value, int | float) and type(value) is not bool and -1e15 < value < 1e15


@dataclass(frozen=True)
class TokenEvent:
    """One new token of one request. `finish_reason` is set on the last one.

    `time` is when the token existed, in seconds on the engine's clock. The token that ends
    a request with reason "stop" is an event too; whoever turns tokens into text leaves it out.
    """

    request_id: str
    token_id: int
    finish_reason: FinishReason | None
    time: float


@dataclass(frozen=True)
class StepEvent(TokenEvent):
    """A `TokenEvent` of the later rungs: with logprobs, and able to tell of a failure.

    A request that fails has a last event with `finish_reason` "error", `token_id` None and the
    reason in `error`; so has one that misses its deadline, with "deadline". The tokens before it
    stay valid.
    """

    token_id: int | None
    logprobs: "Logprobs | None" = None
    error: str | None = None


def advance(request: Request, sampled, now: float) -> StepEvent:
    """Gives a request its next token, or ends it with an error; the event that tells of it."""
    if sampled.error:
        request.finish("error", sampled.error)
    else:
        request.append(sampled.token_id)
    return StepEvent(
        request.request_id, sampled.token_id, request.finish_reason, now,
        sampled.logprobs, request.error,
    )  # fmt: skip


def last_events(ended: Sequence[Request], now: float) -> list[StepEvent]:
    """What is told of requests that ended without a token."""
    return [StepEvent(r.request_id, None, r.finish_reason, now, error=r.error) for r in ended]


def refuse_duplicate(request: Request, known: Sequence[str] | dict | set) -> None:
    """Raises ValueError when an unfinished request has the same id."""
    if request.request_id in known:
        raise ValueError(
            f"request id {request.request_id!r} is already in line; "
            "ids are unique among unfinished requests, give this one another"
        )
