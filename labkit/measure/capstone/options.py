"""The options of `capstone`, and a help from which one can learn the game."""

import argparse
from dataclasses import fields
from pathlib import Path

from labkit.measure.bench import arguments
from labkit.measure.capstone.attacks import (
    ATTACKS,
    LONGEST_ANSWER,
    LONGEST_PROMPT,
    MOST_IN_WINDOW,
    MOST_REQUESTS,
    MOST_TOKENS,
    WINDOW_S,
)
from labkit.measure.capstone.configuration import LEAST_REPLICAS, Configuration
from labkit.measure.simulate.options import number, readable

HELP = """\
Three classes of traffic share a Llama 3.1 8B, and each has been promised something: chat a fast
first token and a steady stream, agents a first token within 2 s although their prompts are long
and come in bursts, batch jobs that they are done in time. You choose the cards and how they are
scheduled. Keep every promise at the least cost.

  score = price per hour of all cards / good tokens per hour, for a million tokens
          good tokens are those of requests that met their SLO; a promise is kept when enough
          requests of the class met it, and who breaks one is ranked behind all who break none.
          The rent runs as long as requests arrive, and until the last has its first token

The real scheduler, policies and routers serve 40 s of traffic on a virtual clock; a step takes
max(bytes / bandwidth, FLOP / peak) of the card ("modelled": real servers are slower). So a score
takes a second or two, and is the same on every machine. Prices are dated list prices.

  play         the task, the default and a greedy choice; in a terminal try others by name
  score        one configuration: its cost, which promises it keeps, what held it back
  leaderboard  what has been written under a name (score --name), the best first
  attack       a workload of yours against another's configuration

What to try, and what to watch
  --policy                  who goes first when not all can: does chat wait behind a job?
  --max-num-batched-tokens  of a step: a large step is efficient, and everybody waits for it
  --max-num-seqs            running at once: too few and cards idle along, too many and each is slow
  --num-blocks              KV cache: fewer than fit hold requests back, or preempt them
  --replicas, --card        few fast cards or many slow ones; two at least
  --router pools            --dedicated replicas for urgent requests only, with rules to help out"""
EXAMPLES = """\
examples:
  python3 -m labkit capstone play
  python3 -m labkit capstone score --replicas 3 --policy priority
  python3 -m labkit capstone score --card L40S --replicas 9 --name "team 2" --write ours.json
  python3 -m labkit capstone attack --config ours.json --built-in long-prompts
  python3 -m labkit capstone leaderboard"""
ATTACK_HELP = f"""\
Break your neighbour's scheduler. Write a workload against the configuration of somebody else: any
server can be drowned, so it is limited to {MOST_REQUESTS} requests, {MOST_TOKENS:,} tokens of prompts and
answers together, {MOST_IN_WINDOW} requests in any {WINDOW_S:g} s, prompts of {LONGEST_PROMPT:,} and answers of {LONGEST_ANSWER:,} tokens; that
is about 5% of what else arrives. Priorities and deadlines you may claim as you like, as clients
do.

It is compared with a yardstick: as many requests and tokens, evenly over the time and of middling
priority. What the classes lose beyond that is your doing. A class is broken when its promise is
kept under the yardstick and not under attack.

--workload is JSONL, one request a line: id, max_tokens, prompt or prompt_token_ids (only their
length counts), arrival_s from 0 to 40, priority, deadline_ms."""  # noqa: E501
FIELDS = {
    "card": "A100, L4, L40S, H100, H200 or B200",
    "replicas": f"cards, {LEAST_REPLICAS} or more: one alone is no service",
    "policy": "fcfs, priority, fair or deadline",
    "max_num_batched_tokens": "tokens in a step",
    "max_num_seqs": "running requests of a replica",
    "num_blocks": "KV blocks of 16 tokens on each card (default: what fits beside the weights)",
    "preemption": "recompute, swap or auto",
    "router": "round-robin, least-loaded, power-of-two or pools",
    "dedicated": "with pools: replicas for urgent requests (priority below 1)",
    "urgent_above": "with pools: from so many tokens under way urgent requests may leave",
    "lend_below": "with pools: below so many tokens under way a dedicated one helps the others",
}


def parser(prog: str) -> argparse.ArgumentParser:
    found = arguments.Parser(prog=prog, description=HELP, epilog=EXAMPLES)
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text, description in (
        ("play", "the task, and a first look", "The task, two scores, and more in a terminal."),
        ("score", "one configuration", "Serves the workload, and says what it costs and keeps."),
        ("leaderboard", "who is best so far", "The entries for this workload, the best first."),
        ("attack", "break your neighbour's scheduler", ATTACK_HELP),
    ):
        sub = commands.add_parser(name, help=text, description=description)
        add_traffic(sub.add_argument_group("what arrives"))
        if name in ("score", "attack"):
            add_configuration(sub.add_argument_group("the configuration"))
        if name == "score":
            add_score(sub)
        if name == "attack":
            add_attack(sub.add_argument_group("the attack").add_mutually_exclusive_group(
                required=True))  # fmt: skip
        sub.add_argument("--json", type=arguments.writable, metavar="FILE", help="write it")
    return found


def add_traffic(group) -> None:
    group.add_argument("--seed", type=arguments.whole(0), default=0, metavar="N", help="default: 0")
    for name, what in {"chat": "conv, for chat and batch", "agent": "code, for agents"}.items():
        group.add_argument(
            f"--{name}-trace", type=readable, metavar="FILE",
            help=f"a CSV of Azure's public trace {what} (default: synthetic, with its lengths)",
        )  # fmt: skip


def add_configuration(group) -> None:
    group.add_argument(
        "--config", type=readable, metavar="FILE", help="JSON of --write; options go over it"
    )
    for field in fields(Configuration):
        text, is_text = FIELDS[field.name], isinstance(field.default, str)
        if field.default is not None:
            text += f" (default: {field.default})"
        group.add_argument(
            f"--{field.name.replace('_', '-')}", type=str if is_text else arguments.whole(0),
            metavar="NAME" if is_text else "N", help=text,
        )  # fmt: skip


def add_score(parser) -> None:
    parser.add_argument(
        "--price", type=number(0), metavar="USD", help="of one card an hour (default: list price)"
    )
    parser.add_argument("--name", metavar="NAME", help="write the score on the leaderboard")
    parser.add_argument(
        "--write", type=arguments.writable, metavar="FILE", help="write the configuration, to share"
    )


def add_attack(group) -> None:
    group.add_argument("--workload", type=readable, metavar="FILE", help="JSONL, one a line")
    group.add_argument("--built-in", choices=[*ATTACKS], help="one to begin with")


def configuration_of(options: argparse.Namespace) -> Configuration:
    """The file's, if there is one, with the options over it. Raises ConfigurationError."""
    base = Configuration.read(options.config) if options.config else Configuration()
    return changed(base, {name: getattr(options, name) for name in FIELDS})


def changed(base: Configuration, values: dict) -> Configuration:
    """None leaves a field as it is; another router takes its pools along."""
    given = {name: value for name, value in values.items() if value is not None}
    kept = base.to_json()
    if given.get("router", kept["router"]) != "pools":
        kept |= {name: getattr(Configuration, name) for name in
                 ("dedicated", "urgent_above", "lend_below")}  # fmt: skip
    if given.get("card", kept["card"]) != kept["card"]:
        kept["num_blocks"] = None
    return Configuration.from_json(kept | given)


def parse(argv: list[str], prog: str) -> argparse.Namespace:
    """The options, with the configuration checked. Prints one line and exits when it must."""
    found = parser(prog)
    options = found.parse_args(argv)
    if options.command in ("score", "attack"):
        try:
            options.configuration = configuration_of(options)
        except ValueError as error:
            found.error(str(error))
    if options.command == "score" and options.name and options.price:
        found.error("the leaderboard compares under list prices; leave out --price or --name")
    return options


def traces_of(options: argparse.Namespace) -> tuple[Path | None, Path | None]:
    return options.chat_trace, options.agent_trace
