"""What the clients of `bench soak` ask for, drawn from a seed: good, bad, and impolite requests.

Many answers are marked: a bias makes the model say one letter only, so that an answer that got
a token of another request, or lost one, gives itself away.
"""

import json
import math
from dataclasses import dataclass, field
from random import Random
from string import ascii_letters

MOST_TOKENS = 400  # of an answer; with the longest prompt it fits into the 512 that `tiny` has
STOP_AFTER = 5  # letters of a marked answer that are a stop string
WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "no", "dog", "ran", "by", "it", "so", "we")
KINDS = {  # of the clients: how often of 100, and what each does
    "whole": (19, "waits for a whole answer"),
    "stream": (26, "reads a stream to its end"),
    "cancels": (8, "ends its own request by DELETE, twice"),
    "cancels other": (4, "ends one that is open, whoever asked for it, twice"),
    "leaves early": (6, "disconnects before an answer comes"),
    "leaves midway": (8, "disconnects after some tokens"),
    "half a body": (2, "disconnects before all is sent"),
    "never reads": (2, "asks for a stream and takes nothing"),
    "lets go": (3, "is told an id (Prefer: respond-async), and asks how it goes on"),
    "bad input": (15, "sends what must be refused"),
    "looks": (7, "reads lists, metrics, health, the live page"),
}
KILLS = "kills"
JSON, ASYNC = {"Content-Type": "application/json"}, "respond-async"
OPTIONS = (  # little of everything, so that requests wait, are preempted, refused and dropped
    "--model", "tiny", "--port", "0", "--max-num-seqs", "16", "--num-blocks", "160",
    "--max-queued-requests", "48", "--max-unsent-tokens", "128", "--write-timeout", "5",
    "--log-format", "json",
)  # fmt: skip
LOOKS = ("/v1/requests", "/metrics", "/health", "/v1/models", "/openapi.json", "/", "/live")
LOGPROBS = {"chat": True, "completions": 5}  # long answers: more than a connection holds
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


@dataclass(frozen=True)
class Ask:
    """One request, and how its client behaves. `pause_s` and `after` say when it leaves."""

    number: int
    kind: str
    path: str = ""
    body: bytes = b""
    headers: dict = field(default_factory=JSON.copy)
    method: str = "POST"
    statuses: tuple[int, ...] = (200,)  # that are right
    stream: bool = False
    num_choices: int = 0
    max_tokens: int = 0
    letter: str = ""  # all that is said; empty: anything
    stop: bool = False  # after STOP_AFTER letters
    with_usage: bool = False
    label: str = ""
    pause_s: float = 0.0
    after: int = 0


def mix(count: int, seed: int, kills: int = 0) -> list[Ask]:
    """`count` asks. The engine is killed at `kills` places between the first and last tenth."""
    rng = Random(seed)
    weights = [weight for weight, _ in KINDS.values()]
    kinds = rng.choices([*KINDS], weights, k=count)
    places = range(count // 10, max(count * 9 // 10, count // 10 + kills))
    for place in rng.sample(places, kills):
        kinds[place] = KILLS
    return [draw(number, kind, rng) for number, kind in enumerate(kinds)]


def draw(number: int, kind: str, rng: Random) -> Ask:
    if kind == KILLS:
        return Ask(number, kind)
    if kind == "looks":
        return Ask(number, kind, rng.choice(LOOKS), method="GET", after=rng.randint(1, 3))
    if kind == "bad input":
        return bad(number, rng)
    return good(number, kind, rng)


def good(number: int, kind: str, rng: Random) -> Ask:
    """A request that must be answered."""
    streams = {"stream": True, "leaves midway": True, "never reads": True}
    streams |= {"whole": False, "lets go": False}
    stream = streams.get(kind, rng.random() < 0.5)
    endpoint = rng.choice([*PATHS])
    marked = rng.random() < 0.7
    letter = rng.choice(ascii_letters) if marked else ""
    n = rng.choices((1, 2, 3), (80, 12, 8))[0]
    longest = round(math.exp(rng.uniform(0, math.log(MOST_TOKENS))))
    if kind == "never reads":
        n, longest = 3, MOST_TOKENS
    body, num_prompts = prompts(endpoint, rng)
    stop = marked and kind != "never reads" and rng.random() < 0.15
    label = "same" if rng.random() < 0.2 and "cancels" not in kind else f"soak-{number}"
    label = f"soak-{number}" if kind == "never reads" else label
    body |= {"n": n, "max_tokens": longest, "request_id": label} | manners(rng)
    if kind == "never reads":
        body |= {"ignore_eos": True, "deadline_ms": None, "logprobs": LOGPROBS[endpoint]}
    if marked:
        body["logit_bias"] = {str(token_of(letter)): 100}
    if stop:
        body["stop"] = letter * STOP_AFTER
        body.pop("min_tokens", None)  # else its first tokens are let through
    elif not marked and rng.random() < 0.2:
        body["stop"] = rng.choice(["e", ["zz", "\n\n"], "the cat"])
    usage = stream and rng.random() < 0.5
    if stream:
        body |= {"stream": True} | ({"stream_options": {"include_usage": True}} if usage else {})
    lets_go = kind == "lets go"
    return Ask(
        number, kind, PATHS[endpoint], as_json(body), JSON | ({"Prefer": ASYNC} if lets_go else {}),
        statuses=(202,) if lets_go else (200,), stream=stream,
        num_choices=n * num_prompts, max_tokens=longest, letter=letter, stop=stop,
        with_usage=usage or not stream, label=label,
        pause_s=rng.expovariate(3), after=round(math.exp(rng.uniform(0, 4))),
    )  # fmt: skip


def prompts(endpoint: str, rng: Random) -> tuple[dict, int]:
    """One prompt, seldom two; some begin alike, so that prefixes are shared."""
    begin = rng.choice(["", "", "Once upon a time there was a king. ", "You are of help to all. "])

    def text() -> str:
        return begin + " ".join(rng.choices(WORDS, k=rng.randint(1, 10)))

    if endpoint == "chat":
        return {"messages": [{"role": "user", "content": text()}]}, 1
    if rng.random() < 0.1:
        return {"prompt": [text(), text()]}, 2
    if rng.random() < 0.3:
        return {"prompt": [rng.randint(0, 255) for _ in range(rng.randint(1, 90))]}, 1
    return {"prompt": text()}, 1


def manners(rng: Random) -> dict:
    """How it is sampled, how urgent it is, and whose it is."""
    chances = {
        "temperature": (0.8, lambda: rng.choice([0, 0, 0.7, 1.5])),
        "top_p": (0.1, lambda: 0.9),
        "top_k": (0.1, lambda: rng.choice([1, 40])),
        "min_p": (0.05, lambda: 0.05),
        "presence_penalty": (0.05, lambda: 1.5),
        "seed": (0.3, lambda: rng.randint(-(2**31), 2**31)),
        "min_tokens": (0.05, lambda: 1),
        "ignore_eos": (0.5, lambda: True),
        "priority": (0.5, lambda: rng.randint(-5, 5)),
        "deadline_ms": (0.1, lambda: rng.choice([1, 30, 300, 3000, 30_000])),
        "user": (0.4, lambda: rng.choice(["gold", "silver", "bronze", "a" * 256])),
        "cache_salt": (0.1, lambda: rng.choice("xy")),
    }
    return {name: value() for name, (chance, value) in chances.items() if rng.random() < chance}


def as_json(body: dict) -> bytes:
    return json.dumps(body).encode()


def token_of(letter: str) -> int:
    """A letter in `tiny`'s vocabulary: printable ASCII stands first, in order."""
    return ord(letter) - ord("!")


# ---- what must be refused

TOO_LONG = "a" * 600
GIVEN = {"prompt": "a", "max_tokens": 4}
SAYS = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 4}
NO_JSON = (
    b"", b'{"prompt": "a"', b"[]", b"null", b'{"prompt": "\xff"}', b"[" * 50_000,
    b'{"prompt": "a", "temperature": NaN}', b'{"prompt": "a", "seed": 1e999}',
    b'{"prompt": "\\ud800"}',
)  # fmt: skip
WRONG = (
    {}, {"prompt": 5}, {"prompt": []}, {"prompt": ""}, {"prompt": ["a", 1]}, {"prompt": [-1]},
    {"prompt": [100_000]}, {"prompt": TOO_LONG}, {"prompt": "a", "max_tokens": 600},
    *(GIVEN | more for more in (
        {"max_tokens": "7"}, {"max_tokens": 0}, {"max_tokens": 10**30}, {"temperature": -1},
        {"top_p": 0}, {"n": 0}, {"n": 1000}, {"n": True}, {"stop": ["a"] * 17}, {"stop": ""},
        {"stream": "yes"}, {"stream_options": {"include_usage": True}}, {"priority": 1.5},
        {"deadline_ms": 0}, {"logit_bias": {"259": 1}}, {"logit_bias": {"a": 1}}, {"echo": True},
        {"promt": "b"}, {"logprobs": 21}, {"user": "u" * 257}, {"stop_token_ids": [-1]},
    )),
)  # fmt: skip
WRONG_CHATS = (
    {}, {"messages": []}, {"messages": "a"}, {"messages": [{"role": "user"}]},
    {"messages": [{"content": "a"}]}, SAYS | {"tools": [{"type": "function"}]},
    SAYS | {"top_logprobs": 3}, SAYS | {"max_completion_tokens": 5},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
)  # fmt: skip


def bad(number: int, rng: Random) -> Ask:
    """A request that must be refused, with the statuses that are right."""
    here = PATHS["completions"]
    kinds = [
        lambda: (here, as_json(rng.choice(WRONG)), (400,)),
        lambda: (PATHS["chat"], as_json(rng.choice(WRONG_CHATS)), (400,)),
        lambda: (here, rng.choice(NO_JSON), (400,)),
        lambda: (here, as_json(GIVEN | {"model": "gpt"}), (404,)),
        lambda: (here, b'{"prompt": "' + b"a" * 3_000_000 + b'"}', (413,)),
        lambda: ("/v1/nothing", b"{}", (404,)),
    ]
    path, body, statuses = rng.choices(kinds, (8, 4, 4, 1, 1, 1))[0]()
    headers, method = JSON, "POST"
    if rng.random() < 0.05 and path == here and 413 not in statuses:
        headers, statuses = {"Content-Type": "text/plain"}, (415,)
    elif rng.random() < 0.05:
        path, method, body, statuses = rng.choice([
            (here, "GET", b"", (405,)), ("/v1/requests/cmpl-0", "DELETE", b"", (404,)),
            ("/v1/requests/cmpl-0", "GET", b"", (404,)), ("/v1/models/gpt", "GET", b"", (404,)),
        ])  # fmt: skip
    return Ask(number, "bad input", path, body, headers, method, statuses)
