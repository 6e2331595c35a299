"""A workload: what a benchmark asks of a server, read from a file or made from a seed.

One JSON object a line: `{"id", "prompt" or "prompt_token_ids", "max_tokens", "ignore_eos",
"arrival_s", "priority", "tenant", "deadline_ms"}`. A prompt is one user message in the model's
chat template.
"""

import itertools
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from labkit.engine.request import Request


class WorkloadError(ValueError):
    """A workload that can't be read or run; the message names the place, the value, the limit."""


@dataclass(frozen=True)
class WorkloadRequest:
    """One line of a workload. Exactly one of `prompt` and `prompt_token_ids` is given.

    `arrival_s` counts from the start of the run; `deadline_ms` from the arrival. A lower
    `priority` runs first. Raises WorkloadError that names the field and its value.
    """

    id: str
    max_tokens: int
    prompt: str | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    ignore_eos: bool = False  # go on after an end-of-sequence token, to exactly max_tokens
    arrival_s: float = 0.0
    priority: int = 0
    tenant: str = ""
    deadline_ms: float | None = None

    def __post_init__(self):
        check("id", self.id, isinstance(self.id, str) and self.id, "a text, not empty")
        check("max_tokens", self.max_tokens, is_int(self.max_tokens, 1), "a whole number from 1")
        check("ignore_eos", self.ignore_eos, isinstance(self.ignore_eos, bool), "true or false")
        check("arrival_s", self.arrival_s, is_number(self.arrival_s, 0), "seconds, 0 or more")
        check("priority", self.priority, is_int(self.priority), "a whole number")
        check("tenant", self.tenant, isinstance(self.tenant, str), "a text")
        deadline = self.deadline_ms
        fine = deadline is None or is_number(deadline, 0) and deadline > 0
        check("deadline_ms", deadline, fine, "milliseconds above 0, or null")
        self.check_prompt()

    def check_prompt(self) -> None:
        text, ids = self.prompt, self.prompt_token_ids
        if (text is None) == (ids is None):
            given = "neither" if text is None else "both"
            raise WorkloadError(
                f"{given} of prompt and prompt_token_ids is given; give exactly one of them"
            )
        if ids is not None:
            fine = isinstance(ids, Sequence) and not isinstance(ids, str) and len(ids) > 0
            fine = fine and all(is_int(token_id, 0) for token_id in ids)
            check("prompt_token_ids", ids, fine, "a list of token ids, at least one")
            object.__setattr__(self, "prompt_token_ids", tuple(ids))
        else:
            check("prompt", text, is_text(text), "a text without half characters")


def is_int(value, least: int | None = None) -> bool:
    """Whether a value is a whole number (true and false are none) and not below `least`."""
    fine = isinstance(value, int) and not isinstance(value, bool)
    return fine and (least is None or value >= least)


def is_number(value, least: float) -> bool:
    """Whether a value is a finite number and not below `least`."""
    fine = isinstance(value, int | float) and not isinstance(value, bool)
    return fine and least <= value < math.inf


def is_text(value) -> bool:
    """Whether a value is a text that UTF-8 can hold: JSON can write half a surrogate pair."""
    try:
        return isinstance(value, str) and value.encode("utf-8") is not None
    except UnicodeEncodeError:
        return False


def check(name: str, value, is_fine: bool, wanted: str) -> None:
    if not is_fine:
        shown = repr(value)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        raise WorkloadError(f"{name} is {shown}; {wanted} is needed")


def read(path: Path) -> list[WorkloadRequest]:
    """The requests of a JSONL file, in its order; empty lines are passed over.

    Raises WorkloadError with the number of the line, the field and its value.
    """
    try:
        lines = Path(path).read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines()
    except OSError as error:
        raise WorkloadError(f"workload {path} can't be read: {error.strerror or error}") from None
    requests: dict[str, WorkloadRequest] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            request = read_line(line)
            if request.id in requests:
                raise WorkloadError(f"id {request.id!r} is there already; ids must be unique")
        except WorkloadError as error:
            raise WorkloadError(f"{path}, line {number}: {error}") from None
        requests[request.id] = request
    if not requests:
        raise WorkloadError(f"workload {path} has 0 requests; at least one line is needed")
    return list(requests.values())


def read_line(line: bytes) -> WorkloadRequest:
    """One line of a workload file. Raises WorkloadError."""
    try:
        values = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"this is no JSON ({error}); write one object a line") from None
    if not isinstance(values, dict):
        raise WorkloadError(f"this is no JSON object but {type(values).__name__}")
    known = [field.name for field in fields(WorkloadRequest)]
    for name in values:
        if name not in known:
            raise WorkloadError(f"field {name!r} is not known; accepted are {', '.join(known)}")
    for name in ("id", "max_tokens"):
        if name not in values:
            raise WorkloadError(f"field {name!r} is missing")
    return WorkloadRequest(**values)


def to_requests(
    workload: Sequence[WorkloadRequest], loaded, scheduling: bool = False
) -> list[Request]:
    """The workload as an engine takes it: greedy requests, their arrivals counted from 0.

    With `scheduling` their priorities, tenants and deadlines go along; without, all are equal.
    `loaded` is a `LoadedModel`. WorkloadError when a request has a token that the model doesn't
    know, or prompt and `max_tokens` exceed the positions that it has.
    """
    config = loaded.model.config
    limit = getattr(config, "max_position", None) or config.max_position_embeddings
    requests = []
    for asked in workload:
        token_ids = asked.prompt_token_ids
        ids = loaded.encode_chat(asked.prompt) if token_ids is None else list(token_ids)
        if max(ids) >= config.vocab_size:
            raise WorkloadError(
                f"request {asked.id!r}: prompt_token_ids has {max(ids)}, and {loaded.name} knows "
                f"the tokens 0 to {config.vocab_size - 1}; it was made for another model"
            )
        if len(ids) + asked.max_tokens > limit:
            raise WorkloadError(
                f"request {asked.id!r}: {len(ids)} prompt tokens and max_tokens "
                f"{asked.max_tokens} make {len(ids) + asked.max_tokens}, {loaded.name} has "
                f"positions for {limit}; shorten the prompt or ask for fewer tokens"
            )
        request = Request(
            asked.id, ids, asked.max_tokens, asked.ignore_eos, arrival=asked.arrival_s
        )
        if scheduling:
            request.priority, request.tenant = asked.priority, asked.tenant
            if asked.deadline_ms is not None:
                request.deadline = asked.arrival_s + asked.deadline_ms / 1000
        requests.append(request)
    return requests


TOPICS = (
    "how bread rises", "why the sea is salt", "a lighthouse keeper's morning", "the first clocks",
    "how a violin is tuned", "what bees do in winter", "a night train", "why leaves turn red",
)  # fmt: skip
FORMS = ("Tell me in one sentence", "Explain to a child", "Write three short facts", "Describe")
PASSAGE = (
    " Keep to plain words, give one example from daily life, and say what most people get wrong "
    "about it. End with a question that the reader could look into at home."
)


def synthetic(seed: int = 0, num_requests: int = 16, longest: int = 96) -> list[WorkloadRequest]:
    """A workload out of nothing but a seed: short and long prompts, 8 to `longest` tokens out.

    The lengths of the answers are spread evenly and come in a random order, since one long
    answer among short ones is what tells a static batch from a continuous one. All arrive at
    time 0 and run to exactly `max_tokens`.
    """
    draw = random.Random(seed)
    step = (longest - 8) / max(num_requests - 1, 1)
    lengths = [round(8 + step * i) for i in range(num_requests)]
    draw.shuffle(lengths)
    return [
        WorkloadRequest(
            id=f"s{i:02}",
            max_tokens=length,
            prompt=f"{draw.choice(FORMS)}: {draw.choice(TOPICS)}." + draw.choice(("", PASSAGE)),
            ignore_eos=True,
        )
        for i, length in enumerate(lengths)
    ]


def three_classes(seed: int = 0, seconds: float = 15.0) -> list[WorkloadRequest]:
    """Chat, agents and a batch job that share an engine, for `seconds` of arrivals.

    Chat: short questions at random times (Poisson), urgent, to be answered within 2 s. Agents:
    long prompts now and then, short answers, within 5 s. The batch job: all at the start, long
    answers, no hurry (60 s). Priorities 0, 1 and 2; each class is a tenant.
    """
    draw = random.Random(seed)
    asked = [
        ("batch", 0.0, FORMS[2] + f": {draw.choice(TOPICS)}." + PASSAGE, draw.randint(64, 96), 2)
        for _ in range(24)
    ]
    now = draw.expovariate(1.5)
    while now < seconds:
        asked.append(("chat", now, f"{draw.choice(FORMS)}: {draw.choice(TOPICS)}.", 24, 0))
        now += draw.expovariate(1.5)
    for i in range(int(seconds // 3)):
        text = f"Question {i} about {draw.choice(TOPICS)}." + PASSAGE * draw.randint(12, 16)
        asked.append(("agent", 1.0 + 3 * i, text, 16, 1))
    deadlines = {"chat": 2000, "agent": 5000, "batch": 60000}
    numbers = {name: itertools.count() for name in deadlines}
    return [
        WorkloadRequest(
            f"{name}-{next(numbers[name]):02}", length, text, ignore_eos=True,
            arrival_s=round(arrival, 3), priority=priority, tenant=name,
            deadline_ms=deadlines[name],
        )
        for name, arrival, text, length, priority in sorted(asked, key=lambda a: a[1])
    ]  # fmt: skip
