"""What the simulator says of a run that was just measured: the same arrivals and scheduler."""

from collections.abc import Sequence
from statistics import fmean

from labkit.engine.policies import make_policy
from labkit.engine.request import Request
from labkit.engine.scheduler import Scheduler
from labkit.fleet.routing import RoundRobin
from labkit.measure.bench.drive import Run
from labkit.measure.simulate.cost import CostModel
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.pool import LeanPool
from labkit.measure.simulate.records import Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.requests import Arrival
from labkit.measure.simulate.watch import Watch


def predict(engine, cost: CostModel, policy: str, requests: Sequence[Request], run: Run) -> dict:
    """The whole time and the mean E2E of the same arrivals on a virtual clock, in seconds.

    `engine` is the one that ran: its limits are taken over.
    """
    real = engine.scheduler
    host = real.books.host and LeanPool(real.books.host.num_blocks, real.pool.block_size)
    scheduler = Scheduler(
        LeanPool(real.pool.num_blocks, real.pool.block_size), real.max_num_batched_tokens,
        real.max_num_seqs, real.max_model_len, make_policy(policy), real.preemption, host,
    )  # fmt: skip
    records, replica = Records(), Replica(scheduler, cost, Watch(scheduler.pool, cost))
    Fleet([replica], RoundRobin(), records).run([arrival_of(request, run) for request in requests])
    e2e = [value for group in records.groups.values() for value in group.e2e]
    return {"simulated_s": records.seconds, "simulated_e2e_mean_s": fmean(e2e)}


def arrival_of(request: Request, run: Run) -> Arrival:
    """A request as the simulator takes it, its times counted from the start of the run."""
    time, deadline = run.arrivals[request.request_id], request.deadline
    return Arrival(
        time, request.num_prompt_tokens, request.max_tokens, request.priority, request.tenant,
        None if deadline is None else deadline - request.arrival + time,
        request_id=request.request_id,
    )  # fmt: skip
