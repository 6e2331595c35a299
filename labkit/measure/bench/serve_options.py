"""The options of `bench serve` and its help; what can't go together is told before it runs."""

import argparse
import math
import os
import re
from argparse import ArgumentTypeError, Namespace
from urllib.parse import urlsplit

from labkit.measure import slo_options
from labkit.measure.bench import arguments
from labkit.measure.simulate.options import number, readable

DEFAULT_URL = "http://127.0.0.1:8000"
KEY_VARIABLE = "LABKIT_API_KEY"
HELP = """\
Sends requests over HTTP to servers that speak the OpenAI API (labkit, vLLM, any other), and
measures what a user of them would feel. Start a server in another terminal first.

How requests come
  --rate R         R requests a second at random times (Poisson), whatever became of those
                   before: an open loop, as users are. --burstiness B draws the gaps from a
                   gamma distribution of shape B, as vLLM's bench serve does: 1 is Poisson, below
                   1 they come in bursts, above 1 more evenly. "inf" sends all at once. With a
                   --trace its own pattern is stretched to R instead
  --concurrency C  C clients, each of which waits for its answer before it asks again: a closed
                   loop. It slows down with the server, so that it never shows a long queue:
                   for comparison
  neither          as the workload or the trace says; all at once where there is none
A list, such as --rate 1,2,4, gives a row for each.

What is sent: built-in questions, a --workload, the lengths of a --trace, or --prompt-tokens with
--output-tokens. Those of given lengths go to /v1/completions as random token ids, which is
exact; with --endpoint chat as common words, which is about as long (the tokens that the server
counted are shown). Decoding is greedy. Fields beyond the OpenAI API (ignore_eos, priority,
deadline_ms, cache_salt) are tried once beforehand, and left out where a server refuses them. Each
run has a cache_salt of its own, so that none finds the prefixes of the run before.

Formulas (times as the client sees them)
  TTFT      first token - arrival. A request arrives when it is due, even if it is sent later
  ITL       gap between two consecutive tokens of one request, over all requests. --slo-itl-ms
            limits every gap of a request: its longest one
  TPOT      (E2E - TTFT) / (tokens - 1) of one request: its mean ITL, as --slo-tpot-ms limits it
  E2E       last token - arrival
  tokens/s  output tokens of whole answers / wall time
  goodput   requests that met every --slo-... limit and their own deadline_ms / wall time
  wall time last token or failure - first arrival
  queue     begin of the first step - arrival at the server, which only the server knows
Percentiles are by nearest rank, over whole answers. One that is refused (429), breaks off, has an
error event, or ends without [DONE] has failed: it is counted, and never meets a limit.

Tokens are counted by the server (usage). One event may hold several tokens, or a token no text
yet: with n tokens in m events that have text, event j (from 0) is taken to end with token
floor(j (n-1) / (m-1)), and the tokens since the event before are spread evenly over the time
since. "tokens/event" 1.00 means that nothing had to be spread. A server that sends no usage has
its events counted instead, and a line says so.

The server's side is the growth of its /metrics during the run: TTFT, ITL, E2E, queue time
(means). What the client's figure has more is HTTP, the network and the client's own lag. "-":
it has no /metrics with these names (vLLM's)."""
EXAMPLES = """\
examples:
  # where does it stop keeping up? Four rates, and a picture of latency over throughput
  python3 -m labkit bench serve --rate 0.5,1,2,4 --requests 40 --slo-ttft-ms 1000 \\
      --slo-tpot-ms 100 --plot rates.png
  # two servers in turn, on one workload with classes (tenant) and deadlines
  python3 -m labkit bench serve --url ours=http://127.0.0.1:8000 \\
      --url vllm=http://127.0.0.1:8001 --workload mine.jsonl --runs 3 --json both.json"""


def rates(text: str) -> list[float]:
    """Requests/s, separated by commas, each once; inf for all at once."""
    read = number(0)
    found = [math.inf if part.strip() == "inf" else read(part) for part in text.split(",")]
    return list(dict.fromkeys(found))


def server(text: str) -> tuple[str, str]:
    """A name and the root of an URL, from URL or NAME=URL."""
    named = re.match(r"([^=/:]+)=(.*)", text)
    name, url = named.groups() if named else ("", text)
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        fine = False
    if not fine or parts.query or parts.fragment:
        raise ArgumentTypeError(f"{text!r} is no URL such as {DEFAULT_URL} or NAME={DEFAULT_URL}")
    if parts.path.strip("/") not in ("", "v1"):
        raise ArgumentTypeError(f"{text!r} has the path {parts.path!r}; name the server's root")
    return name or parts.netloc.rpartition("@")[2], f"{parts.scheme}://{parts.netloc}"


def add_options(parser) -> None:
    parser.epilog = EXAMPLES
    add_servers(parser.add_argument_group("the servers"))
    add_requests(parser.add_argument_group("what is sent"))
    add_arrivals(parser.add_argument_group("how requests come"))
    slo_options.add_limits(parser.add_argument_group("limits that a request should meet"))
    parser.add_argument("--plot", type=arguments.picture, metavar="FILE.png", help="draw it")


def add_servers(group) -> None:
    group.add_argument(
        "--url", type=server, action="append", metavar="NAME=URL",
        help=f"a server, NAME= if it shall have one; several go in turn (default: {DEFAULT_URL})",
    )  # fmt: skip
    group.add_argument("--model", metavar="NAME", help="default: the first of its /v1/models")
    group.add_argument(
        "--api-key", metavar="KEY", help=f"sent to every server (default: {KEY_VARIABLE}, if set)"
    )
    group.add_argument(
        "--endpoint", choices=["chat", "completions"],
        help="default: chat; completions for token ids",
    )  # fmt: skip
    group.add_argument(
        "--timeout", type=number(0), default=600.0, metavar="S",
        help="a request that takes longer has failed (default: 600)",
    )  # fmt: skip


def add_requests(group) -> None:
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--workload", type=readable, metavar="FILE",
        help="JSONL, one a line: id, prompt or prompt_token_ids, max_tokens, ignore_eos, "
        "arrival_s, priority, tenant (its class), deadline_ms; a prompt is one user message",
    )  # fmt: skip
    source.add_argument(
        "--trace", type=readable, metavar="FILE",
        help="CSV of Azure's traces: TIMESTAMP, ContextTokens, GeneratedTokens",
    )  # fmt: skip
    size = arguments.whole(1)
    source.add_argument("--prompt-tokens", type=size, metavar="N", help="all prompts so long")
    group.add_argument("--output-tokens", type=size, metavar="N", help="and their answers so long")
    group.add_argument(
        "--scale-lengths", type=number(0), metavar="X",
        help="of a trace: prompts and answers X times as long, for a small server",
    )  # fmt: skip
    group.add_argument(
        "--requests", type=size, metavar="N",
        help="the first so many, a workload from the start again if need be (default: all; 16)",
    )  # fmt: skip
    group.add_argument(
        "--ignore-eos", action="store_true",
        help="each answer to exactly max_tokens; a workload says it for each, others always do",
    )  # fmt: skip
    group.add_argument(
        "--keep-prefixes", action="store_true",
        help="no cache_salt: a run may find the prefixes of the one before",
    )  # fmt: skip


def add_arrivals(group) -> None:
    how = group.add_mutually_exclusive_group()
    how.add_argument("--rate", type=rates, metavar="R,...", help="requests/s, open loop, or inf")
    how.add_argument(
        "--concurrency", type=arguments.wholes, metavar="C,...", help="clients, closed loop"
    )
    group.add_argument(
        "--burstiness", type=number(0), metavar="B", help="shape of the gaps (default: 1, Poisson)"
    )
    group.add_argument(
        "--runs", type=arguments.whole(1), default=1, metavar="N",
        help="each server so often, in turn; a row is of all its runs (default: 1)",
    )  # fmt: skip


def contradiction(options: Namespace) -> str | None:
    """Why options can't be combined, or None: nothing is accepted and ignored."""
    finite = [rate for rate in options.rate or [] if not math.isinf(rate)]
    if options.burstiness and (options.trace or not finite):
        return "--burstiness is of a --rate that isn't inf, without a --trace; add one or leave it"
    return contradiction_of_requests(options)


def contradiction_of_requests(options: Namespace) -> str | None:
    """The same of the servers and of what is sent."""
    names = [name for name, _ in servers_of(options)]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled:
        return f"two servers are called {doubled!r}; give each a name: --url NAME=URL"
    if (options.prompt_tokens is None) != (options.output_tokens is None):
        return "--prompt-tokens and --output-tokens go together; give both"
    if options.scale_lengths and not options.trace:
        return "--scale-lengths is of a --trace; name one, or leave it out"
    return None


def servers_of(options: Namespace) -> list[tuple[str, str]]:
    return options.url or [server(DEFAULT_URL)]


def key_of(options: argparse.Namespace) -> str | None:
    return options.api_key or os.environ.get(KEY_VARIABLE) or None
