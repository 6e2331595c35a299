"""What a client may send: the bodies of the two endpoints, and what they ask of the engine.

Limits of sampling are those of `SamplingParams`, which checks them; here they stand in the
document only. A field of OpenAI's API that labkit doesn't have is accepted with the values that
ask for nothing.
"""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from labkit.model.sampling_params import INTEGERS, NUMBERS, SamplingParams, check_integer
from labkit.serving.errors import APIError

MOST_PROMPTS = 256  # of one request; with n, `Service.refuse_when_full` knows how many answers
MOST_MESSAGES = 4096  # of a chat, and parts of a message
MOST_BIASES = 1024
MOST_LABEL = 256  # characters of a name that a client gives


def number(name: str):
    """A field of SamplingParams, with its limits in the document."""
    whole = name in INTEGERS
    least, most, _ = (INTEGERS if whole else NUMBERS)[name]
    kind = "integer" if whole else "number"
    limits = {"type": kind, "minimum": least, "maximum": most}
    if name == "top_p":
        limits = {"type": kind, "exclusiveMinimum": 0, "maximum": 1}
    schema = {"anyOf": [limits, {"type": "null"}]}
    return Annotated[(int if whole else float) | None, WithJsonSchema(schema)]


def only(*values):
    """A field that is accepted with `values`, since they ask for nothing."""

    def check(value):
        if value not in values or isinstance(value, bool) != isinstance(values[-1], bool):
            raise ValueError("not supported here; leave it out")
        return value

    def fine(value):
        return value if value is None else check(value)

    schema = {"enum": [None, *(v for v in values if v is not None)]}
    return Annotated[Any, AfterValidator(fine), WithJsonSchema(schema)]


def checked_prompts(value) -> list:
    """A prompt, or several, as a list: each is a text or a list of token ids."""
    is_one = isinstance(value, str) or is_tokens(value)
    prompts = [value] if is_one else value
    if not isinstance(prompts, list) or not prompts:
        raise ValueError("a text, token ids, or a list of either is needed, not empty")
    if isinstance(prompts[0], int | float):  # token ids, and one that is none
        place = next(i for i, one in enumerate(prompts) if type(one) is not int or one < 0)
        raise ValueError(f"entry {place} is no token id; send whole numbers from 0 on")
    if len(prompts) > MOST_PROMPTS:
        raise ValueError(f"{len(prompts)} prompts, at most {MOST_PROMPTS} fit; send fewer")
    for place, prompt in enumerate(prompts):
        if prompt == "":
            raise ValueError(f"text {place} is empty, 1 character is needed; leave it out")
        if isinstance(prompt, str):
            whole_characters(prompt)
        elif not is_one and not is_tokens(prompt):
            raise ValueError(f"entry {place} is neither a text nor a list of token ids")
    if len({type(prompt) for prompt in prompts}) > 1:
        raise ValueError("texts and token ids are mixed; send one kind")
    return prompts


def whole_characters(value):
    """Refuses half a surrogate pair, which JSON can carry: no token stands for it."""
    for text in [value] if isinstance(value, str) else value if isinstance(value, list) else []:
        try:
            text.encode() if isinstance(text, str) else None
        except UnicodeEncodeError as error:
            told = f"character {error.start} is half a surrogate pair; send whole characters"
            raise ValueError(told) from None
    return value


def is_tokens(value) -> bool:
    return isinstance(value, list) and {*map(type, value)} == {int} and min(value) >= 0


LIMITED = {"type": "string", "minLength": 1, "maxLength": 1000}
STOP = {"anyOf": [LIMITED, {"type": "array", "items": LIMITED, "maxItems": 16}, {"type": "null"}]}
TOKEN = {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}
TOKENS = {"type": "array", "items": TOKEN, "minItems": 1}
STOP_TOKENS = {"anyOf": [{**TOKENS, "minItems": 0, "maxItems": 1024}, {"type": "null"}]}
TEXT = {"type": "string", "minLength": 1}
BIAS = {
    "anyOf": [
        {
            "type": "object", "maxProperties": MOST_BIASES,
            "description": "token id: what is added",
            "propertyNames": {"pattern": "^[0-9]{1,9}$"},
            "additionalProperties": {"type": "number", "minimum": -100, "maximum": 100},
        },
        {"type": "null"},
    ]
}  # fmt: skip
PROMPT = {
    "anyOf": [
        TEXT,
        TOKENS,
        *({"type": "array", "items": i, "minItems": 1, "maxItems": MOST_PROMPTS}
          for i in (TEXT, TOKENS)),
    ]
}  # fmt: skip
Label = Annotated[str, Field(max_length=MOST_LABEL)]
Text = Annotated[str, AfterValidator(whole_characters)]


def few_biases(value):
    if isinstance(value, dict) and len(value) > MOST_BIASES:
        raise ValueError(f"{len(value)} tokens, at most {MOST_BIASES} fit; send fewer")
    return value


class Strict(BaseModel):
    """Knows its fields, and takes no other. Only the first thing that is wrong is looked for:
    a body of 2 MB could have half a million of them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def first_unknown(cls, value):
        unknown = value.keys() - cls.model_fields.keys() if isinstance(value, dict) else ()
        if unknown:
            name = next(str(key) for key in value if key in unknown)[:64]
            name = name.encode("utf-8", "backslashreplace").decode()  # it may be half a pair
            raise PydanticCustomError("unknown_field", "not known here", {"name": name})
        return value


class StreamOptions(Strict):
    include_usage: bool | None = None
    include_obfuscation: only(False) = None


class Common(Strict):
    """What both endpoints have: the first lines are OpenAI's, the others labkit's (as vLLM's)."""

    model: str | None = Field(None, description="as in GET /v1/models; the one there if left out")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: number("n") = None
    stop: Annotated[Any, AfterValidator(whole_characters), WithJsonSchema(STOP)] = None
    seed: number("seed") = None
    max_tokens: number("max_tokens") = None
    temperature: number("temperature") = None
    top_p: number("top_p") = None
    presence_penalty: number("presence_penalty") = None
    frequency_penalty: number("frequency_penalty") = None
    logit_bias: Annotated[
        dict[str, float] | None, BeforeValidator(few_biases), WithJsonSchema(BIAS)
    ] = None
    user: Label | None = Field(None, description="the tenant: who pays, in the fair policy")
    top_k: number("top_k") = None
    min_p: number("min_p") = None
    repetition_penalty: number("repetition_penalty") = None
    min_tokens: number("min_tokens") = None
    stop_token_ids: Annotated[Any, WithJsonSchema(STOP_TOKENS)] = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    priority: Annotated[int, Field(ge=-(10**9), le=10**9)] | None = Field(
        None, description="lower runs first"
    )
    deadline_ms: Annotated[float, Field(ge=1, le=1e9)] | None = Field(
        None, description="from its arrival; a request that hasn't ended by then ends"
    )
    cache_salt: Label | None = Field(
        None, description="prefixes are shared only with requests of the same salt"
    )
    request_id: Label | None = Field(None, description="the client's own name; need not be unique")
    metadata: only({}) = None
    service_tier: only("auto", "default") = None

    def sampling(self, max_tokens: int, logprobs: int | None) -> SamplingParams:
        """Raises ValueError that begins with the field's name."""
        given = {name: getattr(self, name) for name in SAMPLING if getattr(self, name) is not None}
        if self.logit_bias:
            given["logit_bias"] = {as_token_id(key): v for key, v in self.logit_bias.items()}
        return SamplingParams(**given, max_tokens=max_tokens, logprobs=logprobs)


SAMPLING = (
    "n", "stop", "seed", "temperature", "top_p", "presence_penalty", "frequency_penalty", "top_k",
    "min_p", "repetition_penalty", "min_tokens", "stop_token_ids", "ignore_eos",
    "skip_special_tokens",
)  # fmt: skip


def as_token_id(key: str) -> int:
    if not key.isascii() or not key.isdecimal() or len(key) > 9:
        raise ValueError(f"logit_bias has the key {key[:20]!r}; token ids are needed")
    return int(key)


class CompletionBody(Common):
    """`POST /v1/completions`."""

    prompt: Annotated[Any, AfterValidator(checked_prompts), WithJsonSchema(PROMPT)]
    logprobs: number("logprobs") = None
    echo: only(False) = None
    suffix: only("") = None
    best_of: only(1) = None


class TextPart(Strict):
    type: Literal["text"]
    text: Text


# Told apart by what they are, so that only one of the two says what is wrong.
Parts = Annotated[list[TextPart], Field(max_length=MOST_MESSAGES, fail_fast=True)]
Content = Annotated[
    Annotated[Text, Tag("str")] | Annotated[Parts, Tag("list")],
    Discriminator(lambda value: "list" if isinstance(value, list) else "str"),
]


class ChatMessage(Strict):
    """One message. `name` is handed to the chat template, as everything else here."""

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: Content
    name: Label | None = None
    tool_calls: only([]) = None
    function_call: only(None) = None
    refusal: only(None) = None
    audio: only(None) = None
    annotations: only([]) = None

    def plain(self) -> dict:
        """As chat templates take it."""
        parts = self.content
        text = parts if isinstance(parts, str) else "".join(part.text for part in parts)
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text} | ({"name": self.name} if self.name else {})


class ChatBody(Common):
    """`POST /v1/chat/completions`."""

    messages: Annotated[
        list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES, fail_fast=True)
    ]
    max_completion_tokens: number("max_tokens") = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    tools: only([]) = None
    tool_choice: only("none", "auto") = None
    parallel_tool_calls: Annotated[bool | None, Field(description="there are no tools")] = None
    functions: only([]) = None
    function_call: only("none") = None
    response_format: only({"type": "text"}) = None
    modalities: only(["text"]) = None
    audio: only(None) = None
    prediction: only(None) = None
    reasoning_effort: only("none") = None
    store: only(False) = None
    verbosity: only(None) = None
    web_search_options: only(None) = None

    def limit(self) -> int | None:
        """The most tokens of an answer; None: as many as fit. Raises APIError."""
        old, new = self.max_tokens, self.max_completion_tokens
        if old is not None and new is not None and old != new:
            told = f"max_tokens is {old} and max_completion_tokens {new}; send one of them"
            raise APIError(400, told, "max_completion_tokens")
        if new is not None:
            try:
                check_integer("max_completion_tokens", new, *INTEGERS["max_tokens"])
            except ValueError as error:
                raise APIError(400, str(error), "max_completion_tokens") from None
        return old if new is None else new

    def num_logprobs(self) -> int | None:
        """How many alternatives to each token; None for none at all. Raises APIError."""
        if self.top_logprobs and not self.logprobs:
            told = f"top_logprobs is {self.top_logprobs} without logprobs; set logprobs to true"
            raise APIError(400, told, "top_logprobs")
        return (self.top_logprobs or 0) if self.logprobs else None
