"""`python3 -m labkit simulate`: options in, tables out, one line when it can't be."""

import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from itertools import islice

from labkit.console import SetupError, Stages
from labkit.engine.scheduler import Scheduler
from labkit.environment import again
from labkit.fleet.pools import Pools
from labkit.fleet.routing import ROUTERS, PrefixAware, Router
from labkit.measure import slo_options, workload
from labkit.measure.bench.report import Report
from labkit.measure.cost import PRICES
from labkit.measure.simulate import building, cards, options, report, searching, traces
from labkit.measure.simulate.cost import CostError, CostModel
from labkit.measure.simulate.fairness import MOST_TENANTS, Service
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.records import Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.requests import (
    TEMPLATE_TOKENS,
    Arrival,
    at_rate,
    full_hashes,
    of_workload,
)
from labkit.measure.simulate.synthetic import synthetic
from labkit.measure.simulate.timeline import MOST_ROWS, Timeline
from labkit.measure.simulate.watch import Watch
from labkit.measure.workload import WorkloadError

BLOCK_SIZE, MAX_NUM_SEQS = 16, 64
SYNTHETIC_REQUESTS = 1000


def parse(argv: list[str]) -> Namespace:
    return options.parse(argv, again("simulate"))


def main(argv: list[str]) -> int:
    """Runs one simulation; returns the exit status: 0, 1 when it failed, 130 after Ctrl-C."""
    chosen = parse(argv)
    try:
        run(chosen, Report("simulate"))
    except (ValueError, OSError, MemoryError, RuntimeError, SetupError) as error:
        told = " ".join(str(error).split()) or type(error).__name__
        print(f"FAIL simulate: {told}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; nothing was written.", file=sys.stderr)
        return 130
    return 0


def run(chosen: Namespace, out: Report) -> None:
    """Reads, measures if asked to, simulates, tells."""
    stages = Stages(2 + chosen.measure + bool(chosen.plot), sys.stderr)
    with stages.stage("read requests"):
        arrivals, count, source, tenants = read_arrivals(chosen)
    cost, num_blocks = cost_of(chosen, stages)
    slo = slo_options.slo_of(chosen)
    report.header(out, cost, facts(chosen, source, count, num_blocks), chosen.seed, slo)
    price, told_by = price_of(chosen)
    if chosen.capacity:
        with stages.stage("search") as tell:
            searching.run(chosen, out, slo, price, make_one(chosen, cost, num_blocks), tell)
        searching.tell_price(out, price, told_by)
        out.write(chosen.json)
        return
    timeline = Timeline(count <= MOST_ROWS) if chosen.plot else None
    compare = 1 < tenants <= MOST_TENANTS
    fleet = make_fleet(chosen, cost, num_blocks, compare, timeline)
    with stages.stage("simulate") as tell:
        fleet.run(arrivals, lambda number: tell(f"{number:,} of {count:,} requests"))
    out.say()
    report.tell(out, fleet, slo)
    if slo and price is not None:
        report.tell_cost(out, fleet, slo, price)
        searching.tell_price(out, price, told_by)
    if tenants > MOST_TENANTS:
        out.say(f"fairness: not compared for {tenants} tenants, at most {MOST_TENANTS} can be")
    if chosen.plot:
        with stages.stage("draw"):
            draw(chosen, timeline, cost, num_blocks)
        out.say(f"picture: {chosen.plot}")
    out.write(chosen.json)


def read_arrivals(chosen: Namespace) -> tuple[Iterable[Arrival], int, str, int]:
    """The arrivals in order, how many there are, where they come from, and how many tenants."""
    if chosen.synthetic:
        count = chosen.requests or SYNTHETIC_REQUESTS
        if chosen.capacity:
            return (), count, f"synthetic ({chosen.synthetic}), at the rate of each trial", 1
        drawn = synthetic(chosen.synthetic, count, chosen.rate, chosen.seed)
        rate = "the trace's rate" if chosen.rate is None else f"{chosen.rate:g} a second"
        return drawn, count, f"{count:,} synthetic ({chosen.synthetic}), {rate}", 1
    if chosen.trace:
        arrivals = list(islice(traces.read(chosen.trace), chosen.requests))
        source = f"{len(arrivals):,} of {chosen.trace.name}"
        source += ", at the rate of each trial" if chosen.capacity else ""
        if chosen.rate:
            source += f", at {chosen.rate:g} a second"
            return at_rate(arrivals, chosen.rate), len(arrivals), source, 1
        return arrivals, len(arrivals), source, 1
    asked = workload.read(chosen.workload)
    num_texts = sum(one.prompt is not None for one in asked)
    if num_texts and (chosen.prefix_caching or chosen.router == "prefix"):
        raise WorkloadError(
            f"workload {chosen.workload} has {num_texts} prompts as text, and prefixes need token "
            "ids; give prompt_token_ids, or leave prefixes out"
        )
    arrivals = of_workload(asked)[: chosen.requests]
    source = f"{len(arrivals):,} of {chosen.workload.name}"
    if num_texts:
        estimate = f"{TEMPLATE_TOKENS} tokens + 1 for every 4 characters"
        source += f"; {num_texts:,} texts counted as {estimate}"
    return arrivals, len(arrivals), source, len({one.tenant for one in arrivals})


def cost_of(chosen: Namespace, stages: Stages) -> tuple[CostModel, int]:
    """The cost model, and how many blocks a replica has."""
    if chosen.measure:
        from labkit.measure.simulate.measured import measured

        with stages.stage("measure steps of this machine") as tell:
            model, dtype = chosen.model or "smollm2-135m", chosen.dtype or "float32"
            cost, num_blocks = measured(model, dtype, tell, chosen.seed)
    elif chosen.cost:
        cost, num_blocks = CostModel.read(chosen.cost), chosen.num_blocks
    else:
        size = {name: getattr(chosen, name) or of_8b for name, of_8b in options.LLAMA_8B.items()}
        size = {
            "num_params": size["model_params"],
            "kv_bytes_per_token": size["kv_bytes_per_token"],
            "bytes_per_param": size["bytes_per_param"],
            "block_size": chosen.block_size or BLOCK_SIZE,
        }
        name = chosen.card or "H100"
        cost, num_blocks = cards.for_card(name, **size), cards.blocks_on(name, **size)
    if chosen.preemption != "recompute" and not cost.per_swapped_block_s:
        raise CostError(
            f"per_swapped_block_s is 0, so --preemption {chosen.preemption} would cost nothing; "
            "give it in the cost file, or choose recompute"
        )
    return cost, chosen.num_blocks or num_blocks


def price_of(chosen: Namespace) -> tuple[float | None, str]:
    """What a replica costs an hour, and who says so; None where nobody does."""
    if chosen.price is not None:
        return chosen.price, f"{chosen.price:g} USD an hour, as told"
    if chosen.measure or chosen.cost:
        return None, ""
    listed = PRICES[chosen.card or "H100"]
    return listed.per_hour, str(listed)


def facts(chosen: Namespace, source: str, count: int, num_blocks: int) -> dict[str, str]:
    size = chosen.block_size or BLOCK_SIZE
    cached = "prefix caching" if chosen.prefix_caching else "no prefix caching"
    return {
        "requests": source,
        "replicas": f"{chosen.replicas:,}, {pools_of(chosen)}",
        "scheduler": f"{chosen.policy}, {chosen.preemption}; {num_blocks:,} blocks of {size} "
        f"tokens, {chosen.max_num_seqs or MAX_NUM_SEQS} requests, "
        f"{most_tokens(chosen):,} tokens in a step, {cached}",
    }


def pools_of(chosen: Namespace) -> str:
    if not chosen.dedicated:
        return f"router {chosen.router}"
    return f"{chosen.dedicated} of them dedicated to urgent requests"


def most_tokens(chosen: Namespace) -> int:
    """Of a step: here as the engine has it, on a card what servers have there."""
    return chosen.max_num_batched_tokens or (512 if chosen.measure else 2048)


def make_fleet(
    chosen: Namespace,
    cost: CostModel,
    num_blocks: int,
    compare: bool,
    timeline: Timeline | None = None,
) -> Fleet:
    replicas = []
    for _ in range(chosen.replicas):
        scheduler = make_scheduler(chosen, cost, num_blocks)
        service = Service() if compare else None
        replicas.append(Replica(scheduler, cost, Watch(scheduler.pool, cost, service, timeline)))
    needs_ids = chosen.prefix_caching or chosen.router == "prefix"
    dedicated = chosen.dedicated or 0
    return Fleet(replicas, make_router(chosen), Records(), needs_ids, num_dedicated=dedicated)


def make_one(chosen: Namespace, cost: CostModel, num_blocks: int) -> Callable[[], Fleet]:
    """Each trial of a search begins with new replicas."""
    return lambda: make_fleet(chosen, cost, num_blocks, compare=False)


def make_scheduler(chosen: Namespace, cost: CostModel, num_blocks: int) -> Scheduler:
    return building.make_scheduler(
        cost, num_blocks, most_tokens(chosen), chosen.max_num_seqs or MAX_NUM_SEQS, chosen.policy,
        chosen.preemption, chosen.host_blocks, chosen.block_size or BLOCK_SIZE,
        chosen.prefix_caching, chosen.itl_target_ms and chosen.itl_target_ms / 1000,
    )  # fmt: skip


def make_router(chosen: Namespace) -> Router:
    if chosen.dedicated:
        return Pools(chosen.seed)
    kind = ROUTERS[chosen.router]
    if kind is PrefixAware:
        size = chosen.block_size or BLOCK_SIZE
        return PrefixAware(chosen.seed, lambda request: full_hashes(request, size))
    return kind(chosen.seed)


def draw(chosen: Namespace, timeline: Timeline, cost: CostModel, num_blocks: int) -> None:
    from labkit.measure.simulate import plot

    about = (
        f"replicas: {chosen.replicas}, {chosen.policy}, {chosen.preemption}; "
        f"{cost.source}: {cost.about.split(';')[0]}"
    )
    plot.save(chosen.plot, timeline, about, num_blocks * chosen.replicas)
