"""What a client may ask of sampling, checked at the door, and the random numbers of a seed.

Loads no torch: the API process checks requests with this, the engine process samples by it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import repr as short

MAX_STOP_STRINGS = 16
MAX_STOP_LENGTH = 1000  # characters
MAX_LISTED_TOKENS = 1024  # entries of logit_bias, and of stop_token_ids
MAX_BIAS = 100.0
WORD = 2**64

# field: (least, most, what to do instead)
NUMBERS = {
    "temperature": (0.0, 100.0, "0 is greedy, 1 leaves the model's distribution as it is"),
    "top_p": (0.0, 1.0, "1 keeps every token, a little above 0 only the best"),
    "min_p": (0.0, 1.0, "0 keeps every token"),
    "repetition_penalty": (0.01, 100.0, "1 is no penalty"),
    "presence_penalty": (-2.0, 2.0, "0 is no penalty"),
    "frequency_penalty": (-2.0, 2.0, "0 is no penalty"),
}
INTEGERS = {
    "n": (1, 128, "ask for one answer or more"),
    "top_k": (-1, 2**31 - 1, "0 and -1 keep every token"),
    "seed": (-(2**63), 2**63 - 1, "leave it out for a random one"),
    "logprobs": (0, 20, "0 gives only the chosen token's, leaving it out gives none"),
    "max_tokens": (1, 2**31 - 1, "ask for one token or more"),
    "min_tokens": (0, 2**31 - 1, "0 lets the first token end the answer"),
}
MAY_BE_LEFT_OUT = ("seed", "logprobs")
SWITCHES = ("ignore_eos", "skip_special_tokens")


@dataclass(frozen=True)
class SamplingParams:
    """How the tokens of one request are chosen, and when they end.

    Names and meanings are vLLM's, which has them from OpenAI's API: `presence_penalty` and
    `frequency_penalty` look at the output, `repetition_penalty` (Keskar et al., CTRL, 2019) at
    prompt and output; `top_p` is nucleus sampling (Holtzman et al., 2019), `min_p` a floor
    relative to the most likely token (Nguyen et al., 2024). `logprobs` is how many alternatives
    are reported beside the chosen token. `stop` becomes a tuple.

    Raises ValueError, with the field, its value, the limit and a remedy. A request that passes
    can be sampled with any logits; a logit_bias beyond the vocabulary is the one thing that
    can't be seen here.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)  # token id: added to its logit
    seed: int | None = None
    logprobs: int | None = None
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    max_tokens: int = 16
    min_tokens: int = 0
    ignore_eos: bool = False
    skip_special_tokens: bool = True

    def __post_init__(self):
        for name, (least, most, remedy) in NUMBERS.items():
            check_number(name, getattr(self, name), least, most, remedy)
        for name, (least, most, remedy) in INTEGERS.items():
            if name not in MAY_BE_LEFT_OUT or getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least, most, remedy)
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                refuse(name, getattr(self, name), "true or false is needed", "leave it out")
        if self.top_p == 0:
            refuse("top_p", 0, "more than 0 is needed", "for greedy use temperature 0")
        if self.min_tokens > self.max_tokens:
            limit = f"at most max_tokens, {self.max_tokens}, is needed"
            refuse("min_tokens", self.min_tokens, limit, "lower it or raise max_tokens")
        # Frozen is for the others: here the fields get the one form that the rest relies on.
        object.__setattr__(self, "stop", as_stop_strings(self.stop))
        object.__setattr__(self, "stop_token_ids", as_token_ids(self.stop_token_ids))
        object.__setattr__(self, "logit_bias", as_logit_bias(self.logit_bias))


def refuse(name, value, limit, remedy):
    raise ValueError(f"{name} is {short(value)}, {limit}; {remedy}")


def check_number(name, value, least, most, remedy):
    """NaN fails every comparison, infinity the upper one; True is an int for Python only."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:
        refuse(name, value, f"a number from {least:g} to {most:g} is needed", remedy)


def check_integer(name, value, least, most, remedy):
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer or not least <= value <= most:
        refuse(name, value, f"a whole number from {least} to {most} is needed", remedy)


def check_count(name, values, most):
    if len(values) > most:
        refuse(name, values, f"it has {len(values)} entries, at most {most} fit", "send fewer")


def as_stop_strings(stop) -> tuple[str, ...]:
    stop = (stop,) if isinstance(stop, str) else stop
    if not isinstance(stop, (list, tuple)):
        refuse("stop", stop, "a text or a list of texts is needed", "leave it out for none")
    check_count("stop", stop, MAX_STOP_STRINGS)
    for text in stop:
        if not isinstance(text, str) or not 1 <= len(text) <= MAX_STOP_LENGTH:
            limit = f"a text of 1 to {MAX_STOP_LENGTH} characters is needed"
            refuse("stop", text, limit, "the empty text would end every answer at once")
    return tuple(stop)


def as_token_ids(token_ids) -> tuple[int, ...]:
    if not isinstance(token_ids, (list, tuple, set, frozenset)):
        refuse("stop_token_ids", token_ids, "a list of token ids is needed", "leave it out")
    check_count("stop_token_ids", token_ids, MAX_LISTED_TOKENS)
    for token_id in token_ids:
        check_integer("stop_token_ids", token_id, 0, 2**31 - 1, "list ids of the vocabulary")
    return tuple(token_ids)


def as_logit_bias(logit_bias) -> dict[int, float]:
    """A copy, so that what was checked stays as it was."""
    if not isinstance(logit_bias, Mapping):
        refuse("logit_bias", logit_bias, "a mapping of token ids is needed", "leave it out")
    check_count("logit_bias", logit_bias, MAX_LISTED_TOKENS)
    for token_id, bias in logit_bias.items():
        check_integer("logit_bias", token_id, 0, 2**31 - 1, "use token ids as keys")
        remedy = f"{-MAX_BIAS:g} bans the token in practice"
        check_number(f"logit_bias[{token_id}]", bias, -MAX_BIAS, MAX_BIAS, remedy)
    return dict(logit_bias)


def mix(number: int) -> int:
    """The finalizer of splitmix64 (Steele et al., 2014): 64 bits in, 64 well mixed bits out.

    Different numbers stay different.
    """
    number = (number + 0x9E3779B97F4A7C15) % WORD
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % WORD
    number = (number ^ number >> 27) * 0x94D049BB133111EB % WORD
    return number ^ number >> 31


def uniform(seed: int, position: int) -> float:
    """The number in [0, 1) that decides the output token at `position`, from 0 on.

    It depends on nothing else: not on the neighbours in the batch, nor on how often the request
    was started again after a preemption. A generator with a state would lose that.
    """
    return (mix(mix(seed) + position) >> 11) * 2.0**-53  # a float64 holds 53 bits


def child_seed(seed: int, index: int) -> int:
    """The seed of answer `index` of `n`: the first has the request's own, each other another."""
    return seed if index == 0 else mix(seed ^ mix(index))


GREEDY = SamplingParams(temperature=0.0)
