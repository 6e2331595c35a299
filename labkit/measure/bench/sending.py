"""What a load generator sends, and when: arrivals, prompts of a given length, bodies. No I/O."""

import math
import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from labkit.measure.simulate.requests import TEMPLATE_TOKENS, Arrival, at_rate
from labkit.measure.workload import WorkloadError, WorkloadRequest

LOW, HIGH = 32, 250  # ids that mean something to any tokenizer, a byte tokenizer too
WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world",
    "school", "state", "family", "student", "group", "country", "problem", "hand", "part", "place",
    "case", "week", "company", "system", "program", "question", "work", "number", "night", "point",
    "home", "water", "room", "mother", "area", "money", "story", "fact", "month", "book", "eye",
)  # fmt: skip


@dataclass(frozen=True)
class Load:
    """How requests come: at a `rate`/s (inf: all at once), from so many clients that wait for
    their answers (`concurrency`), or as the requests themselves say."""

    rate: float | None = None
    concurrency: int | None = None

    def __str__(self) -> str:
        if self.concurrency is not None:
            return f"{self.concurrency} at a time"
        if self.rate is not None:
            return "all at once" if math.isinf(self.rate) else f"{self.rate:g}/s"
        return "as given"


def gamma_arrivals(count: int, rate: float, burstiness: float, seed: int) -> list[float]:
    """`count` arrivals in seconds, the first at 0, at `rate`/s on average.

    Gaps are gamma distributed with the shape `burstiness`: 1 is a Poisson process, less comes in
    bursts, more comes evenly. As in vLLM's bench serve they are scaled so that `rate` is met
    exactly whatever the seed; the same seed gives the same pattern at every rate.
    """
    if math.isinf(rate):
        return [0.0] * count
    draw = random.Random(f"arrivals {seed}")
    gaps = [draw.gammavariate(burstiness, 1 / burstiness) for _ in range(count - 1)]
    factor = len(gaps) / rate / (sum(gaps) or 1.0)
    return [time * factor for time in accumulate(gaps, initial=0.0)]


def scheduled(
    asked: Sequence[WorkloadRequest], load: Load, burstiness: float, seed: int,
    keeps_pattern: bool = False,
) -> list[WorkloadRequest]:  # fmt: skip
    """The requests under a load, in order of arrival. With `keeps_pattern` a rate stretches the
    arrivals that they have; otherwise it draws new ones, in the order of the list."""
    if load.concurrency is not None:
        return [*asked]
    if load.rate is None:
        return sorted(asked, key=lambda one: one.arrival_s)
    if keeps_pattern and not math.isinf(load.rate):
        pattern = [Arrival(one.arrival_s, 1, 1) for one in asked]
        times = [arrival.time for arrival in at_rate(pattern, load.rate)]
    else:
        times = gamma_arrivals(len(asked), load.rate, burstiness, seed)
    return [replace(one, arrival_s=time) for one, time in zip(asked, times, strict=True)]


def of_lengths(
    arrivals: Iterable[Arrival], seed: int, as_text: bool, scale: float = 1.0
) -> list[WorkloadRequest]:
    """Requests with prompts and answers of the lengths of `arrivals`, times `scale`.

    As random token ids a prompt has exactly so many tokens. As text it is about that long: common
    words, of which most tokenizers make a token each, less what a chat template adds.
    """
    draw, found = random.Random(f"prompts {seed}"), []
    for number, arrival in enumerate(arrivals):
        size, most = (
            max(round(scale * tokens), 1)
            for tokens in (arrival.num_prompt_tokens, arrival.num_output_tokens)
        )
        if as_text:
            words = draw.choices(WORDS, k=max(size - TEMPLATE_TOKENS, 1))
            prompt = {"prompt": " ".join(words)}
        else:
            prompt = {"prompt_token_ids": draw.choices(range(LOW, HIGH), k=size)}
        found.append(
            WorkloadRequest(
                f"q{number}", most, **prompt, ignore_eos=True, arrival_s=arrival.time,
                priority=arrival.priority, tenant=arrival.tenant,
            )
        )  # fmt: skip
    return found


def repeated(asked: Sequence[WorkloadRequest], count: int) -> list[WorkloadRequest]:
    """The first `count` requests, from the start again where there are fewer."""
    rounds = range(-(-count // len(asked)))
    names = (f".{turn + 1}" if turn else "" for turn in rounds)
    return [replace(one, id=one.id + name) for name in names for one in asked][:count]


def extras_of(asked: WorkloadRequest, salt: str) -> dict:
    """What is sent beside the standard fields, where a server understands it."""
    extras = {"stream_options": {"include_usage": True}}
    if asked.ignore_eos:
        extras["ignore_eos"] = True
    if asked.priority:
        extras["priority"] = asked.priority
    if asked.deadline_ms is not None:
        extras["deadline_ms"] = asked.deadline_ms
    if salt:
        extras["cache_salt"] = salt
    return extras


def body(
    asked: WorkloadRequest, model: str, is_chat: bool, salt: str, refused: Collection[str] = ()
) -> dict:
    """A request as the OpenAI API has it: streamed, greedy, without the extras in `refused`."""
    fields = {"model": model, "max_tokens": asked.max_tokens, "temperature": 0, "stream": True}
    if is_chat:
        fields["messages"] = [{"role": "user", "content": asked.prompt}]
    else:
        ids = asked.prompt_token_ids
        fields["prompt"] = asked.prompt if ids is None else list(ids)
    if asked.tenant:
        fields["user"] = asked.tenant
    extras = extras_of(asked, salt).items()
    return fields | {name: value for name, value in extras if name not in refused}


def is_chat(asked: Sequence[WorkloadRequest], endpoint: str | None) -> bool:
    """Which endpoint requests go to: chat unless they are token ids. Raises WorkloadError."""
    with_ids = [one.id for one in asked if one.prompt_token_ids is not None]
    if endpoint == "chat" and with_ids:
        raise WorkloadError(
            f"request {with_ids[0]!r} has prompt_token_ids, and chat takes only text; "
            "choose --endpoint completions"
        )
    return endpoint == "chat" or endpoint is None and not with_ids
