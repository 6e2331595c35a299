"""`bench capacity`: the highest rate at which a server over HTTP still meets its SLO."""

import math
import sys
from argparse import Namespace
from dataclasses import replace

from labkit.console import Stages
from labkit.measure import slo_options
from labkit.measure.bench import arguments, sending, serve, serve_options, serve_rows
from labkit.measure.bench.drive import BenchError, percentile
from labkit.measure.bench.report import Column, Report, milliseconds, percent
from labkit.measure.bench.sending import Load
from labkit.measure.bench.serve_rows import Outcome
from labkit.measure.capacity import Capacity, capacity, confirmed, interval
from labkit.measure.cost import PRICES, cost_per_million
from labkit.measure.slo import SLO
from labkit.measure.workload import WorkloadRequest

SUMMARY = "the highest rate at which a server keeps its SLO, and what a token costs there"
LOWEST_RATE, HIGHEST_RATE = 1, 100  # requests/s
TRIAL_SECONDS, LEAST_REQUESTS, RUNS = 30, 50, 3
HELP = f"""\
Looks for the capacity of a server that speaks the OpenAI API: the highest rate of requests at
which --slo-share of them meet every --slo-... limit. Start the server in another terminal first.

A trial is a run of `bench serve --rate R`: Poisson arrivals for --trial-seconds, an open loop, and
of {LEAST_REQUESTS} requests at least: at 1 a second it takes that many seconds and its last answer.
The rate doubles from LOW until a trial fails, then the ratio between the highest that met the SLO
and the lowest that failed is halved until they are within --tolerance. Real servers are noisy: so
the edge is tried again, until it has met the SLO in --runs trials in a row; where it fails, a
rate lower by the tolerance takes its place (MLPerf's LoadGen does the same).

  SLO met     requests that met every limit / requests sent; one that failed has met none
  95% sure    where the true share lies, by Wilson's interval over all requests at that rate.
              When it reaches below --slo-share, the capacity is not proven: longer trials help
  cost        price an hour * seconds / 3600 / output tokens of the requests that met the SLO; at
              the edge with the seconds and tokens of all trials there

--price is of the whole server an hour. Dated list prices (sources: labkit/measure/cost.py):
{chr(10).join(f"  {name:5} {price}" for name, price in PRICES.items())}"""
EXAMPLES = """\
examples:
  # how many short questions a second does this laptop's server keep within 1 s and 150 ms?
  python3 -m labkit bench capacity --slo-ttft-ms 1000 --slo-tpot-ms 150 --slo-share 95
  # a vLLM on an H100, MLPerf's limits, and what a million tokens cost
  python3 -m labkit bench capacity --url http://127.0.0.1:8001 --slo llama3.1-8b-interactive \\
      --prompt-tokens 1000 --output-tokens 200 --rates 1,100 --price 6.88"""
TRIALS = [
    Column("server", "server"),
    Column("rate", "requests/s", "{:,.3f}"),
    Column("requests", "requests", "{:,}"),
    Column("failed", "failed", "{:,}"),
    Column("slo_met", "SLO met", percent),
    Column("is_met", "", lambda is_met: "yes" if is_met else "no"),
    Column("goodput", "goodput/s", "{:,.2f}"),
    Column("ttft_p99_s", "TTFT p99 ms", milliseconds),
    Column("tpot_p99_s", "TPOT p99", milliseconds),
    Column("lag_p99_s", "sent late p99", milliseconds),
    Column("cost", "USD / million good tokens", "{:,.3f}"),
]


def add_options(parser) -> None:
    parser.epilog = EXAMPLES
    serve_options.add_servers(parser.add_argument_group("the servers"))
    serve_options.add_requests(parser.add_argument_group("what is sent"))
    group = parser.add_argument_group("limits that a request should meet")
    slo_options.add_limits(group)
    group.add_argument(
        "--price", type=slo_options.dollars, metavar="USD", help="of the server an hour"
    )
    group = parser.add_argument_group("the search")
    slo_options.add_search(group, LOWEST_RATE, HIGHEST_RATE, TRIAL_SECONDS)
    group.add_argument(
        "--tolerance", type=slo_options.percentage, default=10.0, metavar="PERCENT",
        help="how near the edge is wanted (default: 10)",
    )  # fmt: skip
    group.add_argument(
        "--runs", type=arguments.whole(1), default=RUNS, metavar="N",
        help=f"trials in a row that the edge must stand (default: {RUNS})",
    )  # fmt: skip


def contradiction(options: Namespace) -> str | None:
    """Why options can't be combined, or None: nothing is accepted and ignored."""
    if not slo_options.slo_of(options):
        return "a capacity is about limits; give --slo PRESET or --slo-...-ms"
    if options.trial_seconds and options.requests:
        return "--requests and --trial-seconds both say how long a trial is; leave one out"
    return serve_options.contradiction_of_requests(options)


class Trials:
    """The trials of one server. `meets` runs one of them, and keeps what came of it."""

    def __init__(self, options: Namespace, plan: serve.Plan, endpoint, slo: SLO, tell):
        self.options, self.plan, self.endpoint = options, plan, endpoint
        self.slo, self.tell = slo, tell
        self.rows: list[dict] = []
        self.counts: dict[float, list[int]] = {}  # rate → [met, requests] of all its trials

    def meets(self, rate: float) -> bool:
        import asyncio

        from labkit.measure.bench import load

        asked = self.asked(rate)
        for_s = f"for {asked[-1].arrival_s:.0f} s"
        about = f"trial {len(self.rows) + 1}, {rate:.3f} requests/s {for_s}: "
        outcome = asyncio.run(load.play(
            self.endpoint, asked, self.plan.is_chat, serve.salt_of(self.options), None,
            self.options.timeout, lambda text: self.tell(about + text),
        ))  # fmt: skip
        found = row(self.endpoint.name, rate, outcome, self.slo, self.options.price)
        met, count = self.counts.setdefault(rate, [0, 0])
        self.counts[rate] = [met + found["met"], count + found["requests"]]
        found["is_met"] = found["met"] >= slo_options.share_of(self.options) * found["requests"]
        self.rows.append(found)
        return found["is_met"]

    def asked(self, rate: float) -> list[WorkloadRequest]:
        """As many requests as arrive in a trial; each trial has other arrivals."""
        seconds = self.options.trial_seconds or TRIAL_SECONDS
        count = self.options.requests or max(LEAST_REQUESTS, math.ceil(rate * seconds))
        seed = self.options.seed + len(self.rows)
        asked = sending.repeated(self.plan.asked, count)
        return sending.scheduled(asked, Load(rate=rate), 1.0, seed)


def row(server: str, rate: float, outcome: Outcome, slo: SLO, price: float | None) -> dict:
    """One trial, and the cost of its good tokens."""
    pairs = serve_rows.pairs_of([outcome])
    good = [answer.num_tokens for asked, answer in pairs if serve_rows.meets(asked, answer, slo)]
    found = serve_rows.figures(pairs, slo, outcome.seconds)
    kept = ("requests", "failed", "slo_met", "goodput", "ttft_p99_s", "tpot_p99_s", "e2e_p99_s")
    cost = None
    if price is not None and sum(good):
        cost = cost_per_million(price, sum(good), outcome.seconds)
    return {"server": server, "rate": rate} | {name: found[name] for name in kept} | {
        "met": len(good), "good_tokens": sum(good), "seconds": outcome.seconds, "cost": cost,
        "lag_p99_s": percentile([answer.sent - answer.arrival for _, answer in pairs], 99),
    }  # fmt: skip


def run(options: Namespace, report: Report) -> None:
    """Searches on each server in turn; prints every trial, then what came of it."""
    plan, slo = plan_of(options), slo_options.slo_of(options)
    low, high = options.rates or (LOWEST_RATE, HIGHEST_RATE)
    tolerance = options.tolerance / 100
    stages = Stages(2 * len(serve_options.servers_of(options)), sys.stderr)
    endpoints = serve.meet_all(options, plan, stages)
    share = slo_options.share_of(options)
    about = f"Poisson, {low:g} to {high:g} requests/s, {100 * share:g}% must meet the SLO"
    serve.header(report, options, plan, endpoints, slo, about)
    found: list[tuple[Trials, Capacity]] = []
    for endpoint in endpoints:
        with stages.stage(f"{endpoint.name}: search") as tell:
            trials = Trials(options, plan, endpoint, slo, tell)
            edge = capacity(trials.meets, low, high, tolerance)
            edge = confirmed(edge, trials.meets, options.runs, tolerance)
            found.append((trials, edge))
    report.table("trials", TRIALS, [row for trials, _ in found for row in trials.rows])
    for trials, edge in found:
        tell_capacity(report, trials, edge, share)


def plan_of(options: Namespace) -> serve.Plan:
    """What is sent again and again. Raises WorkloadError, TraceError or BenchError."""
    asked, source, _ = serve.requests_of(replace_requests(options))
    if options.ignore_eos:
        asked = [replace(one, ignore_eos=True) for one in asked]
    if not asked:
        raise BenchError(f"{source} has 0 requests; name one with some")
    return serve.Plan(asked, source, [], sending.is_chat(asked, options.endpoint))


def replace_requests(options: Namespace) -> Namespace:
    """Of a workload and a trace all requests; others are repeated."""
    return Namespace(**(vars(options) | {"requests": None}))


def tell_capacity(report: Report, trials: Trials, found: Capacity, share: float) -> None:
    """The sentence that it was all for, and how sure it is."""
    name = trials.endpoint.name
    report.content.setdefault("capacity", []).append(
        {"server": name, "rate": found.rate, "fails_at": found.fails_at, "share": share}
    )
    if not found.rate:
        report.note(f"{name}: no capacity: at {found.fails_at:.3g} requests/s the SLO is missed")
        return
    met, count = trials.counts[found.rate]
    low, high = interval(met, count)
    told = f"{name}: {found.rate:.3g} requests/s: {met} of {count} requests met the SLO there"
    told += f" (95% sure: {low:.1%} to {high:.1%})"
    if found.fails_at is not None:
        told += f"; at {found.fails_at:.3g} it was missed"
    else:
        told += ", and no higher rate was asked for (--rates)"
    report.note(told)
    if low < share:
        report.note(
            f"{name}: {count} requests don't prove {share:.1%}: try longer trials or more runs"
        )
    if trials.options.price is not None:
        there = [row for row in trials.rows if row["rate"] == found.rate]
        good, seconds = (sum(row[name] for row in there) for name in ("good_tokens", "seconds"))
        cost = cost_per_million(trials.options.price, good, seconds)
        report.note(f"{name}: {cost:,.3f} USD for a million good tokens there")
