"""What `python3 -m labkit route` can be told, and what of it is sensible. Standard library only."""

import argparse
import re
from argparse import ArgumentTypeError, Namespace
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from labkit.environment import again
from labkit.fleet.routing import ROUTERS
from labkit.serving.options import Parser, above_zero, count, key_of, port, whole

DESCRIPTION = """\
A router in front of OpenAI endpoints: labkit's, vLLM's, any other. Clients talk to it as to one
server; each request goes to one replica, chosen by a policy:

  round-robin    one after the other
  least-loaded   the fewest tokens under way, counted from dispatch (default)
  power-of-two   the less loaded of two drawn at random
  session        the same replica for a session (header x-session-id, else `user` of the body)
  prefix         the one that has seen the longest beginning of this prompt, unless it is busy

  python3 -m labkit serve --port 8001 &
  python3 -m labkit serve --port 8002 &
  python3 -m labkit route --policy prefix \\
    --backend http://127.0.0.1:8001 --backend http://127.0.0.1:8002

With two pools, urgent requests (priority below 1) go to the dedicated one:

  python3 -m labkit route --dedicated http://127.0.0.1:8001 --shared http://127.0.0.1:8002

A replica that is slower than the others may have its own timeouts, after commas:

  --backend URL --backend big=URL,first-byte=180,between-bytes=120

A replica is left out while its health checks fail or its breaker is open. A request goes to
another replica as long as its client has seen nothing of an answer; after that a loss ends the
stream with an error event. The header x-labkit-replica says who answered."""


PREFIX_BLOCKS = 100_000  # a hash, a set and a place in a dictionary for each: 0.4 KB
TIMEOUTS = ("connect", "first-byte", "whole-answer", "between-bytes")  # of each replica


@dataclass(frozen=True)
class Target:
    """A replica as it is given: NAME=URL, or URL alone, whose host and port are its name then."""

    name: str
    url: str
    pool: str = "shared"
    timeouts: dict[str, float] = field(default_factory=dict)  # those that are its own


def target(text: str) -> Target:
    text, *given = text.split(",")
    name, _, url = text.partition("=") if re.match(r"[\w.-]+=", text) else ("", "", text)
    parts = urlsplit(url)
    try:
        is_fine = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none
        is_fine = False
    if not is_fine or parts.query or parts.fragment or parts.username:
        raise ArgumentTypeError(f"{text!r} is no URL of a server; give http://HOST:PORT")
    url = url.rstrip("/")
    if url.endswith("/v1"):
        raise ArgumentTypeError(f"{text!r} ends with /v1; leave that out: paths are passed on")
    return Target(name or parts.netloc, url, timeouts=timeouts(given))


def timeouts(given: list[str]) -> dict[str, float]:
    """A replica's own, by the names that `backends.Timeouts` has for them."""
    found: dict[str, float] = {}
    for one in given:
        name, _, seconds = one.partition("=")
        if name not in TIMEOUTS:
            told = f"a replica has no timeout {one!r}; after a comma give NAME=SECONDS with"
            raise ArgumentTypeError(f"{told} {', '.join(TIMEOUTS)}")
        key = name.replace("-", "_")
        if key in found:
            raise ArgumentTypeError(f"{name} is given twice for a replica; give it once")
        found[key] = above_zero(seconds)
    return found


def parse(argv: list[str]) -> Namespace:
    """The options. Prints a help or one line about what is wrong, and exits, when it must."""
    parser = Parser(
        prog=again("route"), description=DESCRIPTION, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_replicas(parser.add_argument_group("the replicas"))
    add_server(parser.add_argument_group("the router"))
    add_patience(parser.add_argument_group("patience"))
    options = parser.parse_args(argv)
    problem = contradiction(options)
    if problem:
        parser.error(problem)
    pools = (("dedicated", options.dedicated), ("shared", options.shared))
    options.targets = options.backend or [
        replace(one, pool=pool) for pool, given in pools for one in given
    ]
    names = [one.name for one in options.targets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        parser.error(f"two replicas are called {twice}; give them names: --backend NAME=URL")
    options.api_key = key_of(options)
    return options


def contradiction(options: Namespace) -> str | None:
    has_pools = bool(options.dedicated or options.shared)
    if not has_pools and not options.backend:
        return "there is no replica; give --backend URL for each, or --dedicated and --shared"
    if has_pools and options.backend:
        return "--backend has no pool; give every replica as --dedicated or --shared, or none"
    if has_pools and options.policy:
        return f"--policy {options.policy} knows no pools; leave it out, or give --backend"
    if has_pools and not (options.dedicated and options.shared):
        return "there is one pool; give both --dedicated and --shared, or --backend for all"
    for name in ("urgent_above", "lend_below"):
        if not has_pools and getattr(options, name) is not None:
            return f"--{name.replace('_', '-')} is of pools; give --dedicated and --shared"
    if options.prefix_blocks is not None and options.policy != "prefix":
        return "--prefix-blocks is what --policy prefix remembers; give both, or none"
    if options.api_key is not None and not options.api_key.strip():
        return "--api-key is empty, and would let everybody in; give a key, or leave it out"
    return None


def add_replicas(group) -> None:
    given = {"type": target, "action": "append", "default": [], "metavar": "[NAME=]URL[,TIMEOUT=S]"}
    told = f"a replica; once for each. TIMEOUT: {', '.join(TIMEOUTS)}"
    group.add_argument("--backend", **given, help=told)
    group.add_argument("--dedicated", **given, help="or one of the pool for urgent requests")
    group.add_argument("--shared", **given, help="and one of the pool for the others")
    group.add_argument(
        "--policy", choices=ROUTERS, metavar="POLICY",
        help=f"{', '.join(ROUTERS)} (default: least-loaded)",
    )  # fmt: skip
    group.add_argument(
        "--prefix-blocks", type=count, metavar="N",
        help="`prefix` remembers N blocks of 128 bytes of prompts, the ones seen last; each takes"
        f" 0.4 KB of memory here (default: {PREFIX_BLOCKS:,}, 40 MB)",
    )  # fmt: skip
    group.add_argument(
        "--urgent-above", type=whole, metavar="N",
        help="an urgent request leaves a dedicated pool with N tokens a replica (default: 4096)",
    )  # fmt: skip
    group.add_argument(
        "--lend-below", type=whole, metavar="N",
        help="others may use a dedicated replica with fewer than N tokens (default: 0, never)",
    )  # fmt: skip
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of random choices (0)")


def add_server(group) -> None:
    group.add_argument("--host", default="127.0.0.1", help="default: 127.0.0.1, this machine only")
    group.add_argument("--port", type=port, default=8080, metavar="N", help="default: 8080")
    group.add_argument(
        "--api-key", metavar="KEY",
        help="clients send it, and it is passed on; health checks send it too (or LABKIT_API_KEY;"
        " default: none)",
    )  # fmt: skip
    group.add_argument(
        "--session-header", default="x-session-id", metavar="NAME", help="default: x-session-id"
    )
    group.add_argument(
        "--log-format", choices=("text", "json"), help="default: text at a terminal, else json"
    )
    group.add_argument(
        "--write-timeout", type=above_zero, default=30.0, metavar="S",
        help="a client that takes nothing for so long is dropped (default: 30)",
    )  # fmt: skip
    group.add_argument(
        "--drain-timeout", type=above_zero, default=30.0, metavar="S",
        help="after SIGTERM open requests have so long to finish (default: 30)",
    )  # fmt: skip


PATIENCE = {  # seconds
    "connect-timeout": (2.0, "until a replica accepts the connection"),
    "first-byte-timeout": (60.0, "until a streamed answer begins"),
    "whole-answer-timeout": (600.0, "until an answer that isn't streamed comes"),
    "between-bytes-timeout": (60.0, "from one piece of an answer to the next"),
    "health-interval": (1.0, "between two health checks of a replica"),
    "health-timeout": (2.0, "until a check is answered; after two that aren't, it is left out"),
    "breaker-cooldown": (1.0, "until a broken replica gets a probe; doubles up to 30 times"),
}


def add_patience(group) -> None:
    for name, (seconds, told) in PATIENCE.items():
        group.add_argument(
            f"--{name}", type=above_zero, default=seconds, metavar="S",
            help=f"{told} (default: {seconds:g})",
        )  # fmt: skip
    group.add_argument(
        "--breaker-failures", type=count, default=3, metavar="N",
        help="in a row, and a replica is left out (default: 3)",
    )  # fmt: skip
    group.add_argument(
        "--retries", type=whole, default=1, metavar="N",
        help="of a request that a replica lost; refused ones go to all (default: 1)",
    )  # fmt: skip
