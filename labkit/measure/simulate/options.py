"""The options of `simulate`, checked before anything runs."""

import argparse
import math

from labkit.engine.policies import POLICIES
from labkit.fleet.routing import ROUTERS
from labkit.measure import slo_options
from labkit.measure.bench import arguments
from labkit.measure.simulate.cards import CARDS
from labkit.measure.simulate.synthetic import SHAPES

PREEMPTIONS = ("recompute", "swap", "auto")
LOWEST_RATE, HIGHEST_RATE, TRIAL_SECONDS = 0.1, 10_000, 60  # of a search
LLAMA_8B = {"model_params": 8e9, "bytes_per_param": 2.0, "kv_bytes_per_token": 131_072.0}
HELP = """\
Serves requests on a virtual clock: the scheduler, policies and routers of this server, and a
cost model that says how long a step takes in place of a model. A day of traffic on a hundred
cards takes minutes on a laptop, and gives the same schedule on every machine.

What arrives     --trace    a CSV of Azure's public traces (TIMESTAMP, ContextTokens,
                            GeneratedTokens; github.com/Azure/AzurePublicDataset)
                 --workload JSONL, one object a line: id, max_tokens, prompt or
                            prompt_token_ids, and arrival_s, priority (lower runs first),
                            tenant, deadline_ms from the arrival; a text is counted as 28
                            tokens and one for every 4 characters, token ids exactly
                 --synthetic code or conv: gaps and lengths like those of the traces
What serves      --card (H100 unless told, with a model of 8e9 parameters), --measure (this
                 machine) or --cost (a file); --num-blocks is of one replica
What is told     latency by class and tenant, goodput within the --slo-… limits, KV cache in
                 use, preemptions, and how unequal the service of tenants got"""
EXAMPLES = """\
examples:
  # a minute of chat traffic on one H100
  python3 -m labkit simulate --synthetic conv --requests 300
  # how many replicas does this traffic need?
  python3 -m labkit simulate --synthetic conv --rate 40 --requests 5000 --replicas 4 \\
      --router least-loaded --slo-ttft-ms 500 --slo-itl-ms 50
  # the highest rate of which four L40S keep MLPerf's limits, and what a token costs there
  python3 -m labkit simulate --synthetic conv --card L40S --replicas 4 --capacity \\
      --slo llama3.1-8b-interactive
  # who is served first when too much arrives, as a picture
  python3 -m labkit simulate --workload mine.jsonl --policy priority --num-blocks 200 \\
      --preemption swap --plot who.png
  # a real trace on eight replicas of a smaller card
  python3 -m labkit simulate --trace AzureLLMInferenceTrace_conv.csv --replicas 8 --card L4
  # the model on this machine: its steps are measured first
  python3 -m labkit simulate --synthetic code --requests 200 --rate 0.2 --measure"""


def number(least: float, above: bool = True):
    """A finite number above `least`, or from it on."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        fine = math.isfinite(value) and (value > least if above else value >= least)
        if not fine:
            wanted = f"above {least:g}" if above else f"from {least:g} on"
            raise argparse.ArgumentTypeError(f"{text!r} is no number {wanted}; choose one")
        return value

    return read


def readable(text: str):
    file = arguments.path(text)
    if not file.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text!r}; name one that is there")
    return file


def parser(prog: str) -> argparse.ArgumentParser:
    found = arguments.Parser(prog=prog, description=HELP, epilog=EXAMPLES)
    add_arrivals(found.add_argument_group("what arrives"))
    add_scheduler(found.add_argument_group("the scheduler of each replica"))
    add_fleet(found.add_argument_group("the replicas"))
    add_cost(found.add_argument_group("how long a step takes"))
    add_slo(found.add_argument_group("limits that a request should meet"))
    add_capacity(found.add_argument_group("how much can be served"))
    found.add_argument("--seed", type=arguments.whole(0), default=0, metavar="N", help="default: 0")
    found.add_argument(
        "--json", type=arguments.writable, metavar="FILE", help="write what was printed"
    )
    found.add_argument(
        "--plot",
        type=arguments.picture,
        metavar="FILE",
        help="a picture of the time line: each request, or for many the counts",
    )
    return found


def add_arrivals(group) -> None:
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace", type=readable, metavar="FILE", help="CSV of Azure's traces")
    source.add_argument("--workload", type=readable, metavar="FILE", help="JSONL, one a line")
    source.add_argument("--synthetic", choices=[*SHAPES], help="out of --seed")
    group.add_argument(
        "--requests",
        type=arguments.whole(1),
        metavar="N",
        help="the first so many (default: all; 1000 synthetic ones)",
    )
    group.add_argument(
        "--rate",
        type=number(0),
        metavar="R",
        help="requests/s on average, the pattern kept (default: as it is)",
    )


def add_scheduler(group) -> None:
    group.add_argument("--policy", choices=[*POLICIES], default="fcfs", help="default: fcfs")
    group.add_argument(
        "--preemption",
        choices=PREEMPTIONS,
        default="recompute",
        help="what becomes of the blocks of a preempted request (default: recompute)",
    )
    counts = {
        "host-blocks": "on the host, to swap to (default: as many as --num-blocks)",
        "num-blocks": "KV blocks (default: what the card or 1 GiB here holds)",
        "block-size": "tokens in a block (default: 16)",
        "max-num-seqs": "running requests (default: 64)",
        "max-num-batched-tokens": "tokens in a step (default: 2048; 512 with --measure)",
    }
    for name, text in counts.items():
        group.add_argument(f"--{name}", type=arguments.whole(1), metavar="N", help=text)
    group.add_argument(
        "--itl-target-ms",
        type=number(0),
        metavar="MS",
        help="fewer prompt tokens in a step, so that it takes no longer",
    )
    group.add_argument(
        "--prefix-caching",
        action="store_true",
        help="share equal beginnings; needs a workload of token ids, and is slower",
    )


def add_fleet(group) -> None:
    group.add_argument(
        "--replicas", type=arguments.whole(1, 100_000), default=1, metavar="N", help="default: 1"
    )
    group.add_argument(
        "--router", choices=[*ROUTERS], default="least-loaded", help="default: least-loaded"
    )
    group.add_argument(
        "--dedicated", type=arguments.whole(1), metavar="N",
        help="the first N replicas for urgent requests (priority below 1), in place of --router",
    )  # fmt: skip


def add_cost(group) -> None:
    how = group.add_mutually_exclusive_group()
    how.add_argument(
        "--card", choices=[*CARDS], help="modelled: max(bytes / bandwidth, FLOP / peak)"
    )
    what = "coefficients: JSON, as --json writes it under 'cost'; needs --num-blocks"
    how.add_argument("--cost", type=readable, metavar="FILE", help=what)
    how.add_argument("--measure", action="store_true", help="steps of --model on this machine")
    for name, text in {
        "model-params": "parameters (default: 8e9)",
        "bytes-per-param": "bytes of each (default: 2)",
        "kv-bytes-per-token": "keys and values (default: 131072, of Llama 3 8B)",
    }.items():
        group.add_argument(f"--{name}", type=number(0), metavar="X", help=f"with a card: {text}")
    group.add_argument("--model", metavar="NAME", help="to measure (default: smollm2-135m)")
    dtypes = arguments.one_of(arguments.CPU_DTYPES)
    group.add_argument("--dtype", type=dtypes, help="to measure (default: float32)")


def add_slo(group) -> None:
    slo_options.add_limits(group)
    group.add_argument(
        "--price", type=slo_options.dollars, metavar="USD",
        help="of one replica an hour (default with a card: its list price)",
    )  # fmt: skip


def add_capacity(group) -> None:
    group.add_argument(
        "--capacity", action="store_true", help="look for the highest rate that meets the limits"
    )
    slo_options.add_search(group, LOWEST_RATE, HIGHEST_RATE, TRIAL_SECONDS)


def parse(argv: list[str], prog: str) -> argparse.Namespace:
    """The options, with what goes together checked. Prints one line and exits when it must."""
    found = parser(prog)
    options = found.parse_args(argv)
    problem = contradiction(options)
    if problem:
        found.error(problem)
    return options


def contradiction(options: argparse.Namespace) -> str | None:
    """Why options can't be combined, or None: nothing is accepted and ignored."""
    if options.rate and options.workload:
        return "--rate is of traces and synthetic requests; a workload says when each arrives"
    if options.capacity and (options.workload or options.rate or options.plot):
        return "--capacity tries rates of its own: leave out --workload, --rate and --plot"
    has_slo = bool(slo_options.slo_of(options))
    if not has_slo and (options.capacity or options.price is not None):
        return "--capacity and --price are about requests that meet limits; give --slo or --slo-..."
    if not options.capacity and (options.slo_share or options.rates or options.trial_seconds):
        return "--rates, --slo-share and --trial-seconds are of --capacity; add it"
    if options.trial_seconds and (options.requests or options.trace):
        return "--trial-seconds says how many synthetic requests there are; leave out --requests"
    if options.dedicated and options.dedicated >= options.replicas:
        return (
            f"--dedicated {options.dedicated} leaves no shared one of --replicas "
            f"{options.replicas}; have more replicas"
        )
    if options.host_blocks and options.preemption == "recompute":
        return "--host-blocks is of --preemption swap or auto; choose one of them"
    if options.cost or options.measure:
        given = [name for name in LLAMA_8B if getattr(options, name) is not None]
        if given:
            return f"--{given[0].replace('_', '-')} is of a --card; leave it out"
    if not options.measure and (options.model or options.dtype):
        return "--model and --dtype are of --measure; add it"
    if options.measure and options.block_size:
        return f"--block-size {options.block_size}: --measure has blocks of 16; leave it out"
    if options.cost and not options.num_blocks:
        return "--num-blocks is missing: a cost file doesn't say how much memory there is"
    needs_ids = options.prefix_caching or options.router == "prefix"
    if needs_ids and not options.workload:
        return "prefixes need token ids, which only a --workload has; name one"
    return None
