"""What passes between the API process and the engine process: plain data, written as msgpack.

No pickle: what comes in can only become one of these. Everything is numbers and ids; text stays
on the API's side. Times are seconds of `time.monotonic`, which all processes of a machine share.
"""

from typing import Any

import msgspec

from labkit.model.sampling_params import SamplingParams


class Message(msgspec.Struct, tag=True, array_like=True):
    """One message: an array that begins with the name of its kind."""


# ---- to the engine


class Add(Message):
    """A prompt to be answered `params.n` times; the answers are `request_id`, `request_id/1`, …"""

    request_id: str
    prompt_token_ids: list[int]
    params: SamplingParams
    arrival: float
    priority: int = 0
    tenant: str = ""
    deadline: float | None = None
    cache_salt: str = ""


class Abort(Message):
    """Ends requests. An `Aborted` with the same `call` says which of them were open."""

    request_ids: list[str]
    call: int = 0


class Look(Message):
    """Asks for a `Sight` with the same `call`."""

    call: int


class Stop(Message):
    """Ends the engine, whatever is open."""


# ---- from the engine


class Connected(Message):
    """The engine process hears and is heard; now it loads its model."""


class Ready(Message):
    """The model is loaded; what the API has to know of it, and what an operator wants to see."""

    rung: str
    policy: str
    dtype: str
    device: str  # "cpu", "cuda" or "paced:CARD"
    vocab_size: int
    max_model_len: int  # tokens of prompt and output
    max_num_seqs: int
    num_blocks: int  # 0 on a rung without blocks
    block_size: int
    seconds: float  # loading took so long
    mine: list[str] = []  # exercises whose parts a learner wrote
    problems: list[str] = []  # why other parts of the learner are not in use
    num_bytes: int = 0  # of its device's memory, once its cache is full


class Failed(Message):
    """The model could not be loaded."""

    reason: str


class Accepted(Message):
    """A prompt is in line."""

    request_id: str


class Refused(Message):
    """A prompt is not in line: the request is at fault, or ("busy") there are too many."""

    request_id: str
    reason: str
    busy: bool = False


class Aborted(Message):
    """Those of an `Abort` that were open until now."""

    call: int
    request_ids: list[str]


class TokenLogprobs(msgspec.Struct, array_like=True):
    """As `model.sampling.Logprobs`."""

    logprob: float
    rank: int
    alternatives: list[tuple[int, float]]


class Token(msgspec.Struct, array_like=True):
    """As `engine.request.StepEvent`: a new token, or the end of a request without one."""

    request_id: str
    token_id: int | None
    finish_reason: str | None
    time: float
    logprobs: TokenLogprobs | None = None
    error: str | None = None


class Started(msgspec.Struct, array_like=True):
    """A request runs for the first time, since `time`; so many tokens were in the prefix cache."""

    request_id: str
    time: float
    num_cached_tokens: int


class Step(Message):
    """All that one step brought, in one message."""

    began: float
    ended: float
    busy_s: float  # the device was busy for so much of it
    tokens: list[Token]
    started: list[Started]
    preempted: list[str]
    running: int
    waiting: int
    num_used_blocks: int


class Held(msgspec.Struct, array_like=True):
    """One request as the engine holds it."""

    request_id: str
    state: str
    num_computed_tokens: int
    block_ids: list[int]
    num_host_blocks: int
    num_preemptions: int


class Sight(Message):
    """What the engine holds now. `num_cached_blocks` are free, and can be found again."""

    call: int
    requests: list[Held]
    num_used_blocks: int
    num_cached_blocks: int


class EngineConfig(msgspec.Struct):
    """What an engine process is told when it starts."""

    model: str
    rung: str
    dtype: str
    device: str
    options: dict[str, Any]  # of `rungs.make`
    max_queued_requests: int
    mine: bool = False
    attention: str | None = None
    inbox: str = ""  # the address from which it takes messages, and
    outbox: str = ""  # the one to which it sends them


ToEngine = Add | Abort | Look | Stop
FromEngine = Connected | Ready | Failed | Accepted | Refused | Aborted | Step | Sight

encode = msgspec.msgpack.Encoder().encode
decode_to_engine = msgspec.msgpack.Decoder(ToEngine).decode
decode_from_engine = msgspec.msgpack.Decoder(FromEngine).decode
