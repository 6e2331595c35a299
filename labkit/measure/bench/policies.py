"""`bench policies`: three classes of requests on one engine, under each policy."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

from labkit import rungs
from labkit.console import Stages
from labkit.engine.request import Request
from labkit.measure import workload
from labkit.measure.bench import arguments, simulated
from labkit.measure.bench.drive import Run, Tell, drive, percentile, warm_up
from labkit.measure.bench.ladder import differences
from labkit.measure.bench.report import Column, Report, percent
from labkit.measure.simulate import plot
from labkit.measure.simulate.measured import measured_on
from labkit.measure.simulate.timeline import Timeline, state_of

SUMMARY = "chat, agents and a batch job on one engine, under each policy"
HELP = """\
Three classes share one engine with few slots: chat (short and urgent), agents (long prompts) and
a batch job (long answers, no hurry). Each policy serves the same arrivals; those that preempt do
it once by computing again and once by swapping to the host's memory.

  TTFT      first token - arrival; waiting in line is part of it
  E2E       last token - arrival
  on time   requests that ended within their deadline_ms of the workload, over all of the class.
            An engine ends a request at its deadline under any policy; here only the run of
            "deadline" is given them, and the others just come too late
  goodput   requests on time / (last token - first arrival), over all classes
  differs   requests whose tokens are not those of the first policy
  simulated the same arrivals through the same scheduler on a virtual clock, with the steps of
            this machine (measured first) in place of the model: its whole time and mean E2E

A --workload of your own needs tenants, which are the classes, and deadline_ms. The priority rows
preempt; "pre" counts preemptions and "swaps" those that went to the host. --plot draws a
timeline for each policy, FILE-fcfs.png and so on. About three minutes.

  python3 -m labkit bench policies
  python3 -m labkit bench policies --slots 4 --dtype int8 --json policies.json"""

FORMULAS = [
    "TTFT = first token - arrival; E2E = last token - arrival; percentiles by nearest rank",
    "on time = requests ended within deadline_ms / all; goodput = those / (last - first arrival)",
]
RUNS = [
    ("fcfs", "recompute"), ("priority", "recompute"), ("priority", "swap"), ("fair", "recompute"),
    ("deadline", "recompute"),
]  # fmt: skip
COLUMNS = [
    Column("policy", "policy"),
    Column("preemption", "preemption"),
    Column("class", "class"),
    Column("requests", "requests"),
    Column("ttft_p50_s", "TTFT p50 s", "{:.2f}"),
    Column("ttft_p99_s", "p99 s", "{:.2f}"),
    Column("e2e_p50_s", "E2E p50 s", "{:.2f}"),
    Column("e2e_p99_s", "p99 s", "{:.2f}"),
    Column("on_time", "on time", percent),
    Column("preemptions", "pre"),
    Column("swaps", "swaps"),
]
TOTALS = [
    Column("policy", "policy"),
    Column("preemption", "preemption"),
    Column("tokens_per_s", "tokens/s", "{:.1f}"),
    Column("goodput", "goodput requests/s", "{:.2f}"),
    Column("preemptions", "preemptions"),
    Column("seconds", "measured s", "{:.1f}"),
    Column("simulated_s", "simulated s", "{:.1f}"),
    Column("e2e_mean_s", "E2E mean s", "{:.2f}"),
    Column("simulated_e2e_mean_s", "simulated s", "{:.2f}"),
    Column("differs", "differs", lambda found: ", ".join(found) or "none"),
]


def add_options(parser) -> None:
    arguments.add_workload(parser, "built in, 15 s of arrivals of the three classes")
    arguments.add_model(parser)
    arguments.add_dtype(parser)
    parser.add_argument(
        "--slots", type=arguments.whole(1, 4096), default=8, metavar="N",
        help="max_num_seqs, requests that run at once (default: 8)",
    )  # fmt: skip
    parser.add_argument("--plot", type=arguments.picture, metavar="FILE.png", help="draw it")


def run(options: Namespace, report: Report) -> None:
    """Measures every policy on the workload, prints both tables, draws the picture."""
    if options.workload:
        asked, source = workload.read(options.workload), options.workload.name
    else:
        asked, source = workload.three_classes(options.seed), f"built in, from seed {options.seed}"
    about = f"{source}: {len(asked)} requests, up to {sum(r.max_tokens for r in asked)} tokens out"
    facts = {"model": options.model, "dtype": options.dtype, "slots": options.slots}
    report.header(FORMULAS, options.seed, **facts, workload=about)
    stages, rows, totals, tokens = Stages(len(RUNS) + 2, sys.stderr), [], [], {}
    with stages.stage("model"):
        loaded = rungs.load_for("preemptive", options.model, options.dtype, "cpu")
    with stages.stage("steps, for the simulation") as tell:
        cost, _ = measured_on(loaded, options.dtype, tell, options.seed)
    for policy, preemption in RUNS:
        with stages.stage(f"{policy}, {preemption}") as tell:
            watched, run = measure(policy, preemption, loaded, asked, options.slots, tell)
        tokens = tokens or run.token_ids
        name = {"policy": policy, "preemption": preemption if policy == "priority" else "-"}
        requests = watched.requests
        rows += [name | row for row in by_class(asked, run, requests)]
        predicted = simulated.predict(watched.engine, cost, policy, [*requests.values()], run)
        totals.append(name | total(asked, run, requests, tokens) | predicted)
        if options.plot:
            ending = f"-{policy}" + f"-{preemption}" * (policy == "priority")
            file = options.plot.with_stem(options.plot.stem + ending)
            watched.draw(file, run, f"{policy}, {options.model} in {options.dtype}, measured")
            report.note(f"picture: {file}")
    report.table("rows", COLUMNS, rows)
    report.table("totals", TOTALS, totals)
    report.note(f"Steps for the simulation: {cost.about}.")


def measure(
    policy: str, preemption: str, loaded, asked: Sequence[workload.WorkloadRequest],
    slots: int, tell: Tell,
) -> tuple["Watched", Run]:  # fmt: skip
    """One policy: what was seen of the requests, and what was measured."""
    engine = rungs.make(
        "preemptive", loaded, policy=policy, preemption=preemption, max_num_seqs=slots,
        prefix_caching=False,
    )  # fmt: skip
    if policy != "deadline":
        asked = [replace(one, deadline_ms=None) for one in asked]
    requests = workload.to_requests(asked, loaded, scheduling=True)
    warm_up(engine, requests[0])
    watched = Watched(engine)
    return watched, drive(engine, requests, tell)


class Watched:
    """Keeps the requests that an engine is given, and who was computed in each step."""

    def __init__(self, engine):
        self.engine, self.requests, self.steps = engine, {}, []
        self.add, self.commit = engine.add, engine.scheduler.commit
        engine.add, engine.scheduler.commit = self.note_request, self.note_step

    def note_request(self, request: Request) -> None:
        self.requests[request.request_id] = request
        self.add(request)

    def note_step(self, plan, sampled, now: float):
        chunks = [(chunk, chunk.request.num_preemptions) for chunk in plan.chunks.values()]
        self.steps.append((plan.time, now, chunks))
        return self.commit(plan, sampled, now)

    def draw(self, file: Path, run: Run, about: str) -> None:
        """The timeline of the run, in seconds from its start."""
        timeline = Timeline(by_request=True)
        numbers = {name: number for number, name in enumerate(self.requests)}
        before, running = 0.0, set()
        for begin, end, chunks in self.steps:
            together = running & {chunk.request.request_id for chunk, _ in chunks}
            for chunk, num_preemptions in chunks:
                name = chunk.request.request_id
                arrival = run.arrivals[name]
                since = before if name in together else begin  # between two steps nobody waits
                start = chunk.request.arrival - arrival
                seen = SimpleNamespace(
                    request_id=name, arrival=arrival, num_preemptions=num_preemptions
                )
                timeline.span(numbers[name], seen, state_of(chunk), since - start, end - start)
            before, running = end, {chunk.request.request_id for chunk, _ in chunks}
        plot.save(file, timeline, about, self.engine.scheduler.pool.num_blocks)


def is_on_time(one: workload.WorkloadRequest, run: Run) -> bool:
    """Whether a request has ended, within its deadline where it has one."""
    if one.id in run.late or not run.token_times[one.id]:
        return False
    return one.deadline_ms is None or run.latencies[one.id].e2e <= one.deadline_ms / 1000


def by_class(asked, run: Run, watched: dict[str, Request]) -> list[dict]:
    """A row for each tenant, in order of priority."""
    order = {one.tenant: one.priority for one in asked}
    rows = []
    for tenant in sorted(order, key=lambda name: (order[name], name)):
        own = [one for one in asked if one.tenant == tenant]
        latencies = [run.latencies[one.id] for one in own if one.id in run.latencies]
        ended = [run.latencies[one.id] for one in own if one.id not in run.late]
        rows.append({
            "class": tenant or "-",
            "requests": len(own),
            "ttft_p50_s": percentile([one.ttft for one in latencies], 50),
            "ttft_p99_s": percentile([one.ttft for one in latencies], 99),
            "e2e_p50_s": percentile([one.e2e for one in ended], 50),
            "e2e_p99_s": percentile([one.e2e for one in ended], 99),
            "on_time": sum(is_on_time(one, run) for one in own) / len(own),
            "preemptions": sum(watched[one.id].num_preemptions for one in own),
            "swaps": sum(watched[one.id].num_swaps for one in own),
        })  # fmt: skip
    return rows


def total(asked, run: Run, watched: dict[str, Request], tokens: dict[str, list[int]]) -> dict:
    """One row for the whole run. Requests cut off by a deadline are not compared."""
    whole = {name: ids for name, ids in tokens.items() if name not in run.late}
    return {
        "tokens_per_s": run.tokens_per_s,
        "goodput": sum(is_on_time(one, run) for one in asked) / run.seconds,
        "preemptions": sum(request.num_preemptions for request in watched.values()),
        "seconds": run.seconds,
        "e2e_mean_s": fmean(one.e2e for name, one in run.latencies.items() if name not in run.late),
        "differs": differences(whole, run.token_ids),
        "late": run.late,
    }
