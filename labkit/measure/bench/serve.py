"""`bench serve`: a load generator against servers that speak the OpenAI API."""

import math
import platform
import secrets
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from labkit import machine
from labkit.console import Stages
from labkit.measure import slo_options, workload
from labkit.measure.bench import sending, serve_options, serve_rows
from labkit.measure.bench.drive import BenchError
from labkit.measure.bench.report import Report, cpu_name, layout
from labkit.measure.bench.sending import Load
from labkit.measure.bench.serve_rows import Outcome
from labkit.measure.simulate import traces
from labkit.measure.simulate.requests import Arrival
from labkit.measure.slo import SLO
from labkit.measure.workload import WorkloadRequest

SUMMARY = "a load generator: latency, throughput and goodput of servers over HTTP"
HELP = serve_options.HELP
FORMULAS = [
    "TTFT = first token - arrival (when it is due); E2E = last token - arrival",
    "ITL = gap between consecutive tokens of a request; TPOT = (E2E - TTFT) / (tokens - 1)",
    "tokens/s = output tokens of whole answers / (last token or failure - first arrival)",
    "goodput = requests that met every limit and their deadline / the same time",
    "tokens by the server's usage; percentiles by nearest rank, over whole answers",
]
BUILT_IN = 16  # requests where neither a file nor --requests says how many
MOST_LAG_S, MOST_CPU = 0.02, 0.5  # from here on the client is a part of what is measured

add_options, contradiction = serve_options.add_options, serve_options.contradiction


@dataclass
class Plan:
    """What is sent, from where it is, and under which loads."""

    asked: list[WorkloadRequest]
    source: str
    loads: list[Load]
    is_chat: bool
    keeps_pattern: bool = False  # a rate stretches the arrivals that there are


@dataclass
class Measured:
    """All runs of one server under one load."""

    who: dict
    outcomes: list[Outcome] = field(default_factory=list)


def run(options: Namespace, report: Report) -> None:
    """Measures each server under each load; prints tables and notes, draws the picture."""
    plan, slo = plan_of(options), slo_options.slo_of(options)
    endpoints, measured = measure(options, plan, report, slo)
    tell(report, measured, slo)
    tell_notes(report, endpoints, measured)
    if options.plot:
        from labkit.measure.bench import serve_plot

        serve_plot.save(options.plot, measured, slo, plan.source)
        report.note(f"picture: {options.plot}")


def plan_of(options: Namespace) -> Plan:
    """Raises WorkloadError, TraceError or BenchError when a file doesn't give what is asked."""
    asked, source, most = requests_of(options)
    loads = [Load(rate=rate) for rate in options.rate or []]
    loads += [Load(concurrency=count) for count in options.concurrency or []]
    has_arrivals = options.trace or options.workload
    loads = loads or [Load() if has_arrivals else Load(rate=math.inf)]
    wanted = options.requests or len(asked)
    if wanted > most and (options.trace or loads == [Load()]):
        raise BenchError(
            f"--requests {wanted}: {source} has {most}, and when more would come isn't known; ask "
            "for fewer, or give a workload a --rate or --concurrency"
        )
    asked = sending.repeated(asked, wanted)
    if options.ignore_eos:
        asked = [replace(one, ignore_eos=True) for one in asked]
    chat = sending.is_chat(asked, options.endpoint)
    tokens = sum(one.max_tokens for one in asked)
    about = f"{source}: {len(asked):,} requests, up to {tokens:,} tokens out"
    return Plan(asked, about, loads, chat, keeps_pattern=bool(options.trace))


def requests_of(options: Namespace) -> tuple[list[WorkloadRequest], str, int]:
    """The requests, where they are from, and how many there are at most."""
    count, as_text = options.requests, options.endpoint == "chat"
    how = "words, about so long" if as_text else "random token ids"
    if options.workload:
        asked = workload.read(options.workload)
        return asked, options.workload.name, len(asked)
    if options.trace:
        arrivals, scale = islice(traces.read(options.trace), count), options.scale_lengths or 1.0
        asked = sending.of_lengths(arrivals, options.seed, as_text, scale)
        scaled = "" if scale == 1 else f", lengths times {scale:g}"
        return asked, f"{options.trace.name} ({how}{scaled})", len(asked)
    count = count or BUILT_IN
    if options.prompt_tokens:
        lengths = [Arrival(0.0, options.prompt_tokens, options.output_tokens)] * count
        asked = sending.of_lengths(lengths, options.seed, as_text)
        size = f"{options.prompt_tokens} tokens in, {options.output_tokens} out"
        return asked, f"{size} ({how})", count
    return workload.synthetic(options.seed, count), f"built in, from seed {options.seed}", count


def measure(options: Namespace, plan: Plan, report: Report, slo: SLO):
    """Meets the servers, then runs each load on each of them in turn."""
    import asyncio

    from labkit.measure.bench import load

    num_servers = len(serve_options.servers_of(options))
    stages = Stages(num_servers * (1 + len(plan.loads) * options.runs), sys.stderr)
    endpoints = meet_all(options, plan, stages)
    turns = [
        (one, endpoint)
        for one in plan.loads
        for _ in range(options.runs)
        for endpoint in endpoints
    ]
    header(report, options, plan, endpoints, slo, load_of(options, plan))
    tell_file_limit(report, load, plan)
    measured = {
        (one, endpoint.name): Measured({"server": endpoint.name, "load": str(one)})
        for one in plan.loads
        for endpoint in endpoints
    }
    for one, endpoint in turns:
        asked = sending.scheduled(
            plan.asked, one, options.burstiness or 1.0, options.seed, plan.keeps_pattern
        )
        with stages.stage(f"{endpoint.name}, {one}") as tell_progress:
            outcome = asyncio.run(
                load.play(
                    endpoint, asked, plan.is_chat, salt_of(options), one.concurrency,
                    options.timeout, tell_progress,
                )
            )  # fmt: skip
        measured[one, endpoint.name].outcomes.append(outcome)
    return endpoints, list(measured.values())


def meet_all(options: Namespace, plan: Plan, stages: Stages) -> list:
    """Each server is asked for its model and for two tokens; a stage for each."""
    import asyncio

    from labkit.measure.bench import load

    key, endpoints = serve_options.key_of(options), []
    for name, url in serve_options.servers_of(options):
        endpoints.append(load.Endpoint(name, url, key, options.model or ""))
        with stages.stage(f"{name}: a short request"):
            asyncio.run(load.meet(endpoints[-1], plan.asked, plan.is_chat, salt_of(options)))
    return endpoints


def load_of(options: Namespace, plan: Plan) -> str:
    told = ", ".join(map(str, plan.loads))
    if options.burstiness:
        told += f", burstiness {options.burstiness:g}"
    return told + (f", {options.runs} runs" if options.runs > 1 else "")


def salt_of(options: Namespace) -> str:
    return "" if options.keep_prefixes else secrets.token_hex(8)


def header(
    report: Report, options: Namespace, plan: Plan, endpoints, slo: SLO, load: str
) -> None:
    """The client's machine, the servers, what is sent, the limits, the formulas, the seed."""
    about = {"cpu": cpu_name(), "cores": machine.cores(), "python": platform.python_version()}
    servers = [{"name": e.name, "url": e.url, "model": e.model} for e in endpoints]
    path = "/v1/chat/completions" if plan.is_chat else "/v1/completions"
    facts = {
        "requests": f"{plan.source}, to {path}",
        "load": load,
        "SLO": str(slo),
        "seed": options.seed,
    }
    report.keep(bench=report.bench, machine=about, servers=servers, **facts, formulas=FORMULAS)
    report.say(f"client    {about['cpu']}, {about['cores']:g} cores, Python {about['python']}")
    for one in servers:
        report.say(f"server    {one['name']}: {one['model']} at {one['url']}")
    for name, value in facts.items():
        report.say(f"{name:9} {value}")
    for i, formula in enumerate(FORMULAS):
        report.say(f"{'' if i else 'formula':9} {formula}")
    report.say()
    for endpoint in endpoints:
        if endpoint.refused:
            fields = ", ".join(endpoint.refused)
            report.note(f"{endpoint.name} refuses {fields}: sent without, so compare with care.")


def tell_file_limit(report: Report, load, plan: Plan) -> None:
    most = max(min(one.concurrency or len(plan.asked), len(plan.asked)) for one in plan.loads)
    problem = load.raise_file_limit(most)
    if problem:
        report.note(problem)


def tell(report: Report, measured: Sequence[Measured], slo: SLO) -> None:
    """Prints and keeps the tables."""
    rows = [serve_rows.row(one.who, one.outcomes, slo) for one in measured]
    report.table("rows", serve_rows.ROWS, rows)
    report.table("latency", serve_rows.LATENCY, serve_rows.latency_rows(rows))
    for name, columns, make in (
        ("classes", serve_rows.CLASSES, lambda o: serve_rows.class_rows(o.who, o.outcomes, slo)),
        ("failures", serve_rows.FAILURES, lambda o: serve_rows.failure_rows(o.who, o.outcomes)),
    ):
        found = [row for one in measured for row in make(one)]
        if found:
            report.table(name, columns, found)
    for columns in (serve_rows.BOTH_SIDES, serve_rows.CLIENT):
        report.say(layout(columns, rows) + "\n")
    requests = [
        row for one in measured for row in serve_rows.request_rows(one.who, one.outcomes)
    ]
    report.keep(request_rows=requests)


def tell_notes(report: Report, endpoints, measured: Sequence[Measured]) -> None:
    """What makes figures less than they seem, a sentence each."""
    for one, row in zip(measured, report.content["rows"], strict=True):
        who = f"{row['server']}, {row['load']}"
        whole = [pair for pair in serve_rows.pairs_of(one.outcomes) if pair[1].failure is None]
        uncounted = sum(not answer.is_counted for _, answer in whole)
        short = sum(asked.ignore_eos and answer.num_tokens < asked.max_tokens
                    for asked, answer in whole)  # fmt: skip
        if uncounted:
            report.note(f"{who}: {uncounted} answers came without usage; their events are counted.")
        if short:
            report.note(f"{who}: {short} answers are shorter than max_tokens despite ignore_eos.")
        if (row["lag_p99_s"] or 0) > MOST_LAG_S:
            report.note(
                f"{who}: the client sent late (p99 {1000 * row['lag_p99_s']:.0f} ms), which is in "
                "the latencies; run it on another machine, or ask for less."
            )
        if (row["client_cpu"] or 0) > MOST_CPU:
            report.note(f"{who}: the client took {row['client_cpu']:.0%} of a core.")
        seen, whole_count = row.get("requests_server"), len(whole)
        if seen is not None and seen != whole_count:
            report.note(
                f"{who}: its /metrics count {seen:g} requests, and {whole_count} answers came "
                "whole: its means are not of the same requests."
            )
