"""What a request is refused for before the engine is asked, with the name its client gave it."""

from labkit.serving.errors import APIError
from labkit.serving.lifecycle import Asked
from labkit.serving.messages import Ready

COMPLETION_TOKENS = 16  # OpenAI's default of /v1/completions
WITH_DEADLINES = ("continuous", "preemptive")


def refuse_what_it_lacks(asked: Asked, info: Ready) -> None:
    """Tokens that the model doesn't have, of whatever size; a deadline where a rung has none."""
    named = [*(("prompt", p) for p in asked.prompts), ("logit_bias", asked.params.logit_bias)]
    last = info.vocab_size - 1
    for field, tokens in named:
        if tokens and max(tokens) > last:
            told = f"{field} has token {max(tokens)}, the last of the model is {last}"
            raise APIError(400, told, field)
    if asked.deadline_s is not None and info.rung not in WITH_DEADLINES:
        told = f"deadline_ms is {1000 * asked.deadline_s:g}, and rung {info.rung!r} has none"
        remedy = f"leave it out, or serve rung {' or '.join(WITH_DEADLINES)}"
        raise APIError(400, f"{told}; {remedy}", "deadline_ms")


def fitted(asked: Asked, max_model_len: int) -> int:
    """`max_tokens` as they fit; where they aren't given, what the endpoint gives and what fits."""
    longest = max(map(len, asked.prompts))
    room = max_model_len - longest
    wanted, least = asked.max_tokens, asked.params.min_tokens
    if 1 <= room < least and wanted is None:
        raise APIError(400, f"min_tokens is {least}, only {room} fit; lower it", "min_tokens")
    if room < 1 or wanted is not None and wanted > room:
        told = f"and max_tokens {wanted} " if wanted else "and one of output "
        raise APIError(
            400,
            f"the prompt's {longest} tokens {told}are more than max_model_len, "
            f"{max_model_len}; shorten the prompt or ask for fewer tokens",
            "max_tokens" if room >= 1 else "messages" if asked.endpoint == "chat" else "prompt",
            "context_length_exceeded",
        )
    default = room if asked.endpoint == "chat" else min(max(COMPLETION_TOKENS, least), room)
    return wanted or default
