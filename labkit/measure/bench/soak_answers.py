"""What came back to a client of `bench soak`, and whether the API promises such an answer.

An outcome is one of `FINE` (an answer, or an error that the API promises) or a fault: "hung",
"broken off", "no answer", "wrong answer", "wrong status".
"""

import json
from dataclasses import dataclass

from labkit.measure.bench.soak_asks import STOP_AFTER, Ask

FINE = {
    "answer", "refused", "deadline", "cancelled", "engine lost", "engine down", "busy", "left",
    "not read", "killed",
}  # fmt: skip
CODES = {
    "deadline": "deadline", "cancelled": "cancelled", "engine_failed": "engine lost",
    "engine_down": "engine down", "too_many_requests": "busy",
}  # fmt: skip


@dataclass
class Result:
    """What became of one ask. Tokens and choices are those that its client knows of for sure."""

    ask: Ask
    outcome: str
    told: str = ""  # what was wrong
    num_tokens: int = 0
    retries: int = 0

    @property
    def is_fine(self) -> bool:
        return self.outcome in FINE


class Fault(Exception):
    """What no client may see. `args`: the outcome, and what was wrong."""


def shown(ask: Ask) -> str:
    return f"{ask.method} {ask.path} {ask.body[:80]!r}"


def refusal(ask: Ask, status: int, headers, body: bytes) -> tuple[str, float]:
    """What a status that isn't 200 means; Fault where it is not what the API promises."""
    try:
        error = json.loads(body)["error"]
        message, code = error["message"], error["code"]
    except (ValueError, LookupError, TypeError):
        raise Fault("wrong answer", f"{status} with no error in it: {body[:80]!r}") from None
    if status in ask.statuses:
        return "refused", 0
    outcome = CODES.get(code)
    if outcome is None or 200 not in ask.statuses and status not in (429, 503):
        raise Fault("wrong status", f"{status} ({message}) for {shown(ask)}")
    if status in (429, 503) and "retry-after" not in headers:
        raise Fault("wrong answer", f"{status} without Retry-After for {shown(ask)}")
    return outcome, float(headers.get("retry-after", 0))


async def read_stream(ask: Ask, response, result: Result) -> str:
    """Reads events to the end, or leaves after `ask.after` of them."""
    texts, reasons, usage, ended, count = {}, {}, None, "", 0
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        if ended:
            raise Fault("wrong answer", f"after the end of a stream: {line[:80]!r}")
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            ended = "answer"
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            ended = CODES.get(chunk["error"]["code"]) or f"error {chunk['error']}"
            continue
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            index, new = choice["index"], text_of(choice)
            texts[index] = texts.get(index, "") + new
            if choice["finish_reason"]:
                reasons[index] = choice["finish_reason"]
            count += bool(new)
        if ask.kind == "leaves midway" and count >= ask.after:
            response.close()
            return "left"
    if not ended:
        raise Fault("broken off", "a stream ended without [DONE] and without an error")
    if ended != "answer":
        if ended not in FINE:
            raise Fault("wrong answer", ended)
        return ended
    check(ask, texts, reasons, usage, result)
    return "answer"


def check_whole(ask: Ask, body: dict, result: Result) -> str:
    texts = {choice["index"]: text_of(choice) for choice in body["choices"]}
    reasons = {choice["index"]: choice["finish_reason"] for choice in body["choices"]}
    check(ask, texts, reasons, body["usage"], result)
    return "answer"


def text_of(choice: dict) -> str:
    if "text" in choice:
        return choice["text"]
    return (choice.get("delta") or choice.get("message") or {}).get("content") or ""


def check(ask: Ask, texts: dict, reasons: dict, usage: dict | None, result: Result) -> None:
    """Fault unless each choice ended once, for a reason, with the text that was asked for."""
    expected = [*range(ask.num_choices)]
    if sorted(reasons) != expected:
        raise Fault("wrong answer", f"choices {sorted(reasons)} instead of {expected}")
    if (usage is not None) != ask.with_usage:
        raise Fault("wrong answer", f"usage {usage} where {ask.with_usage} was asked")
    for index, reason in reasons.items():
        problem = problem_of(ask, texts.get(index, ""), reason)
        if problem:
            raise Fault("wrong answer", f"{shown(ask)}, choice {index}: {problem}")
    if usage is not None:
        result.num_tokens = usage["completion_tokens"]
        told = sum(map(len, texts.values()))
        if ask.letter and not ask.stop and told != result.num_tokens:
            raise Fault("wrong answer", f"{told} letters, and usage {result.num_tokens}")


def problem_of(ask: Ask, text: str, reason: str) -> str | None:
    """What is wrong with one text; None where nothing is."""
    if reason not in ("stop", "length", "deadline"):
        return f"finish_reason {reason!r}"
    if not ask.letter:
        return None
    if set(text) - {ask.letter}:
        return f"says {text!r} instead of {ask.letter!r}"
    if reason == "stop" and (not ask.stop or text):
        return f"stopped with {text!r}"
    if reason == "length" and len(text) != ask.max_tokens:
        return f"{len(text)} letters instead of {ask.max_tokens}"
    if ask.stop and len(text) >= STOP_AFTER:
        return f"went on after the stop string: {text!r}"
    return None
