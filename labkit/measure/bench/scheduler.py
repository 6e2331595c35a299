"""`bench scheduler`: what deciding costs, without any model."""

import random
import sys
import time
from argparse import Namespace

from labkit.console import Stages
from labkit.engine.blocks import BlockPool
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.measure.bench import arguments
from labkit.measure.bench.drive import percentile
from labkit.measure.bench.report import Column, Report

SUMMARY = "plan and commit against requests waiting and running, without a model"
HELP = """\
Times Scheduler.plan + Scheduler.commit in steady decoding: every running request computes one
token a step, nobody ends, the line waits behind a full house. No model runs: the sampled token
is made up, so what is left is the time that a step spends on deciding and book-keeping.

  step    seconds of plan(now) + commit(plan, sampled, now)
  growth  median step with the longest line / median step with a line a tenth as long;
          1 means that who waits costs nothing

  python3 -m labkit bench scheduler
  python3 -m labkit bench scheduler --waiting 100,1000 --running 16 --steps 500 --json s.json"""

FORMULAS = ["step = plan + commit, one token for each running request; p99 by nearest rank"]
PROMPT_TOKENS, BLOCK_SIZE, VOCAB = 16, 16, 50_000
COLUMNS = [
    Column("waiting", "waiting", "{:,}"),
    Column("running", "running", "{:,}"),
    Column("median_s", "median µs", lambda seconds: f"{1e6 * seconds:,.1f}"),
    Column("p99_s", "p99 µs", lambda seconds: f"{1e6 * seconds:,.1f}"),
    Column("per_request_s", "µs per running request", lambda seconds: f"{1e6 * seconds:.2f}"),
]


def add_options(parser) -> None:
    for name, default in [
        ("waiting", [100, 1000, 10_000, 100_000]),
        ("running", [1, 64, 256, 512]),
    ]:
        parser.add_argument(
            f"--{name}",
            type=arguments.wholes,
            default=default,
            metavar="N,N,...",
            help=f"how many requests (default: {','.join(map(str, default))})",
        )
    parser.add_argument(
        "--steps", type=arguments.whole(5), default=200, metavar="N", help="default: 200"
    )


def run(options: Namespace, report: Report) -> None:
    """Times every pair of lengths, and compares the two longest lines."""
    report.header(FORMULAS, options.seed, steps=options.steps)
    stages, rows = Stages(len(options.waiting), sys.stderr), []
    for waiting in sorted(options.waiting):
        with stages.stage(f"{waiting:,} waiting") as tell:
            for running in sorted(options.running):
                tell(f"{running} running")
                times = step_times(waiting, running, options.steps, options.seed)
                median = percentile(times, 50)
                rows.append({
                    "waiting": waiting,
                    "running": running,
                    "median_s": median,
                    "p99_s": percentile(times, 99),
                    "per_request_s": median / running,
                })  # fmt: skip
    report.table("rows", COLUMNS, rows)
    tell_growth(rows, report)


def tell_growth(rows: list[dict], report: Report) -> None:
    """How much slower the longest line is than one a tenth as long, if both are there."""
    medians = {(row["waiting"], row["running"]): row["median_s"] for row in rows}
    longest = max(row["waiting"] for row in rows)
    growth = {
        running: seconds / medians[longest // 10, running]
        for (waiting, running), seconds in medians.items()
        if waiting == longest and (longest // 10, running) in medians
    }
    if growth:
        told = ", ".join(
            f"× {factor:.2f} ({running} running)" for running, factor in growth.items()
        )
        report.keep(growth=[{"running": r, "factor": f} for r, f in growth.items()])
        report.note(f"growth from {longest // 10:,} to {longest:,} waiting: {told}")


def full_house(waiting: int, running: int, steps: int, seed: int) -> Scheduler:
    """A scheduler whose `running` requests decode for `steps` steps more, with a line behind.

    Prompts have 16 to 31 tokens, drawn from `seed`: so the requests don't all need their next
    block in one step.
    """
    draw = random.Random(seed)
    longest = 2 * PROMPT_TOKENS + steps
    pool = BlockPool(running * -(-longest // BLOCK_SIZE), BLOCK_SIZE)
    scheduler = Scheduler(pool, running * 2 * PROMPT_TOKENS, max_num_seqs=running)
    tokens = [draw.randrange(VOCAB) for _ in range(2 * PROMPT_TOKENS)]
    for number in range(running + waiting):
        prompt = [number % VOCAB, *tokens[: draw.randrange(PROMPT_TOKENS, 2 * PROMPT_TOKENS) - 1]]
        scheduler.add(Request(f"r{number}", prompt, max_tokens=steps + 1, ignore_eos=True))
    return scheduler


def step_times(waiting: int, running: int, steps: int, seed: int) -> list[float]:
    """Seconds of each of `steps` steps."""
    from labkit.model.sampling import Sampled

    scheduler, results = full_house(waiting, running, steps, seed), [Sampled(7)] * running
    scheduler.commit(scheduler.plan(0.0), results, 0.0)  # admits them and computes their prompts
    times = []
    for _ in range(steps - 1):  # the last of the steps would end them all
        begin = time.perf_counter()
        plan = scheduler.plan(begin)
        scheduler.commit(plan, results, begin)
        times.append(time.perf_counter() - begin)
        assert len(plan.chunks) == running == len(scheduler.running)
    return times
