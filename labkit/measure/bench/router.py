"""`bench router`: what a policy is worth, what a router costs, and how many streams it holds."""

import sys
from argparse import ArgumentTypeError, Namespace

from labkit.console import Stages
from labkit.fleet.routing import ROUTERS
from labkit.measure.bench import arguments, paced_devices
from labkit.measure.bench.report import Column, Report, milliseconds, percent
from labkit.measure.simulate.options import number

SUMMARY = "router policies on a prefix-heavy workload, live and simulated; what a router adds"
HELP = """\
Three measurements of the router (python3 -m labkit route).

policies   Two real replicas behind it, and a workload whose prompts begin with one of a few long
           texts (system prompts, documents). The cache of a replica holds half of them: a policy
           that sends each text to one replica computes it once, another one over and over. The
           same shape then on 64 simulated replicas, each an H100 with an 8B model: prompts 8
           times as long, as many beginnings and requests for each replica, the same load.
overhead   Streams of one token from `tiny`, in turn directly and through the router.
streams    Many streams at once from a paced device, directly and through the router.

What to expect: session and prefix near the highest possible hit rate, the others at about half,
and a longer TTFT where more is computed. The load is a share of what the replicas could compute
without any cache, so that a policy without hits is nearly overloaded. Session needs to be told
who belongs together (here the tenant); prefix finds it out.

  hit rate   prompt tokens found in the cache / prompt tokens, as the replicas count them
  TTFT       first token - arrival, seen by the client, through the router
  added      p50 of the TTFT through the router - p50 of the TTFT without
  at once    streams that had not ended when the last of them began

All on this machine, client included: replicas share its cores. About four minutes.

  python3 -m labkit bench router
  python3 -m labkit bench router --policies least-loaded,prefix --requests 200 --json router.json"""

FORMULAS = [
    "hit rate = prompt tokens found in the cache / prompt tokens",
    "TTFT = first token - arrival; percentiles by nearest rank",
    "rate = load x replicas / TTFT of a prompt that nobody has seen (simulated: its computing)",
    "added = p50 of the TTFT through the router - p50 without, in turn in one run",
]


def fine(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"


POLICY = [
    Column("where", "replicas"), Column("policy", "policy"), Column("requests", "requests", "{:,}"),
    Column("failed", "failed"), Column("rate", "rate/s", "{:.1f}"),
    Column("hit_rate", "hit rate", percent), Column("ttft_p50_s", "TTFT p50 ms", milliseconds),
    Column("ttft_p99_s", "p99", milliseconds),
]  # fmt: skip
OVERHEAD = [
    Column("requests", "requests", "{:,}"),
    *(Column(f"{who}_p{p}_s", f"{who} p{p} ms", fine) for who in ("direct", "routed")
      for p in (50, 99)),
    Column("added_p50_s", "added p50", fine),
]  # fmt: skip
STREAMS = [
    Column("where", "streams"), Column("streams", "asked", "{:,}"),
    Column("at_once", "at once", "{:,}"), Column("itl_p50_s", "ITL p50 ms", milliseconds),
    Column("itl_p99_s", "p99", milliseconds),
    Column("cpu_per_token_s", "CPU us/token", lambda seconds: f"{1e6 * seconds:,.0f}"),
]  # fmt: skip
LIVE = 2  # replicas


def policies(text: str) -> list[str]:
    for name in text.split(","):
        if name not in ROUTERS:
            raise ArgumentTypeError(
                f"policy {name!r} is not known; accepted are {', '.join(ROUTERS)}"
            )
    return list(dict.fromkeys(text.split(",")))


def add_options(parser) -> None:
    arguments.add_model(parser)
    whole = arguments.whole
    parser.add_argument(
        "--policies", type=policies, default=list(ROUTERS), metavar="P,...",
        help=f"default: {','.join(ROUTERS)}",
    )  # fmt: skip
    parser.add_argument(
        "--requests", type=whole(LIVE), default=192, metavar="N", help="of each policy (192)"
    )
    parser.add_argument(
        "--groups", type=whole(LIVE), default=24, metavar="N", help="different beginnings (24)"
    )
    parser.add_argument(
        "--prefix-tokens", type=whole(1), default=256, metavar="N", help="of a beginning (256)"
    )
    parser.add_argument(
        "--load", type=number(0), default=0.9, metavar="X",
        help="share of what the replicas compute without a cache (0.9)",
    )  # fmt: skip
    parser.add_argument(
        "--simulated", type=whole(0, 1000), default=64, metavar="N",
        help="replicas to simulate, an even number (64; 0: none)",
    )  # fmt: skip
    parser.add_argument(
        "--overhead-requests", type=whole(0), default=300, metavar="N", help="300; 0: none"
    )
    parser.add_argument("--streams", type=whole(0), default=500, metavar="N", help="500; 0: none")
    parser.add_argument(
        "--device", type=device, default="L4:8b", metavar="CARD:SIZE",
        help="the paced device of the streams (default: L4:8b)",
    )  # fmt: skip


def device(text: str) -> str:
    return paced_devices.sized(text).name


def contradiction(options: Namespace) -> str | None:
    if options.simulated % LIVE:
        return f"--simulated {options.simulated} is odd; {LIVE} are live, so give an even number"
    return None


def run(options: Namespace, report: Report) -> None:
    """Measures; prints a table of each part."""
    from labkit.measure.bench.router_workload import Shape

    shape = Shape(options.groups, options.prefix_tokens, requests=options.requests)
    facts = {
        "model": options.model,
        "workload": f"{shape.requests} requests, {shape.groups} beginnings of {shape.prefix} "
        f"tokens + {shape.suffix} of its own, {shape.output} out; "
        f"{shape.blocks(LIVE)} blocks a replica",
        "load": f"{options.load:g} of what {LIVE} replicas compute without a cache",
        "at best": f"hit rate {percent(shape.most_cached)}: each beginning computed once",
    }
    report.header(FORMULAS, options.seed, **facts)
    parts = 1 + bool(options.simulated) + bool(options.overhead_requests) + bool(options.streams)
    stages = Stages(parts, sys.stderr)
    rows = live_rows(options, shape, stages) + simulated_rows(options, shape, stages)
    report.table("policies", POLICY, rows)
    tell_rest(options, report, stages)


def live_rows(options: Namespace, shape, stages: Stages) -> list[dict]:
    from labkit.measure.bench import router_live as live

    rows = []
    with (
        stages.stage(f"{LIVE} replicas of {options.model}") as tell,
        live.twins(shape, options.model, LIVE, tell) as servers,
    ):
        tell("what a prompt costs")
        rate = options.load * LIVE / live.cold_seconds(servers[0], shape, options.seed)
        for policy in options.policies:
            def told(text: str, policy: str = policy) -> None:
                tell(f"{policy}: {text}")

            rows.append(live.policy_row(policy, servers, shape, rate, options.seed, told))
    return rows


def simulated_rows(options: Namespace, shape, stages: Stages) -> list[dict]:
    from labkit.measure.bench import router_simulated

    if not options.simulated:
        return []
    rows = []
    with stages.stage(f"{options.simulated} simulated replicas") as tell:
        for policy in options.policies:
            tell(policy)
            rows.append(router_simulated.row(
                policy, options.simulated, shape, LIVE, options.load, options.seed
            ))  # fmt: skip
    return rows


def tell_rest(options: Namespace, report: Report, stages: Stages) -> None:
    """What a router adds, and what it holds."""
    from labkit.measure.bench import router_live as live

    if options.overhead_requests:
        with stages.stage("overhead") as tell:
            row = live.overhead(options.overhead_requests, tell)
        report.table("overhead", OVERHEAD, [row])
        report.note(f"The router adds {1000 * row['added_p50_s']:.2f} ms to the TTFT at p50.")
    if options.streams:
        with stages.stage(f"{options.streams} streams") as tell:
            rows = live.streams(options.streams, options.device, tell)
        report.table("streams", STREAMS, rows)
        report.note(f"{rows[-1]['at_once']} of {options.streams} streams were held at once.")
