"""Runs a scheduler or a policy of a check by hand, and writes down what it did."""

from collections.abc import Sequence

from labkit.engine.blocks import BlockPool
from labkit.engine.policies import FCFS, Priority
from labkit.engine.policies.preemption import Recompute, Swap
from labkit.engine.request import Request
from labkit.measure.schedule import MadeUp

MOST_VICTIMS = 6  # in one step; more than any case needs
BLOCK_SIZE = 4


class Stuck(Exception):
    """A step takes from one and gives to the other, and back, and never ends."""


def scheduled(
    scheduler_class,
    asked: Sequence[tuple],
    *,
    num_blocks: int = 16,
    slots: int = 8,
    budget: int = 64,
    fcfs: bool = False,
    sharing: bool = False,
    host_blocks: int = 0,
    swap: bool = False,
    most: int = 12,
) -> dict:
    """Serves `asked` for at most `most` steps; what each step did, and what victims looked like.

    `asked` has (step in which it comes, name, prompt, max_tokens, priority); a prompt is a number
    of tokens or a list of ids. Blocks have 4 tokens. Output tokens count up from 1000.
    """
    policy = FCFS() if fcfs else Priority()
    counted, choose = [], policy.victim

    def victim(running):
        counted.append(None)
        if len(counted) > MOST_VICTIMS:
            raise Stuck
        return choose(running)

    policy.victim = victim
    host = BlockPool(host_blocks, BLOCK_SIZE, False) if host_blocks else None
    pool = BlockPool(num_blocks, BLOCK_SIZE, sharing)
    how = Swap() if swap else Recompute()
    scheduler = scheduler_class(
        pool, budget, slots, policy=policy, preemption=how, host=host
    )
    seen = {"steps": [], "budget left": [], "blocks in use": [], "victims": []}
    requests = {}
    for number in range(1, most + 1):
        for step, name, prompt, max_tokens, priority in asked:
            if step == number:
                first = 100 * (len(requests) + 1)
                ids = prompt if isinstance(prompt, list) else list(range(first, first + prompt))
                requests[name] = Request(name, ids, max_tokens, priority=priority)
                scheduler.add(requests[name])
        if not scheduler.has_unfinished():
            break
        counted.clear()
        try:
            plan = scheduler.plan(float(number))
        except Stuck:
            seen["stopped"] = f"step {number - 1} preempted {MOST_VICTIMS} times and went on"
            break
        tokens = {name: chunk.num_tokens for name, chunk in plan.chunks.items()}
        names = [request.request_id for request in plan.preempted]
        seen["steps"].append({"tokens": tokens, "preempted": names})
        seen["budget left"].append(plan.budget)
        seen["blocks in use"].append(pool.num_used)
        seen["victims"] += [_looks(number - 1, request) for request in plan.preempted]
        sampling = [chunk.request for chunk in plan.chunks.values() if chunk.samples]
        made = [MadeUp(1000 + len(request.output_token_ids)) for request in sampling]
        scheduler.commit(plan, made, float(number))
    seen["output"] = {name: request.output_token_ids for name, request in requests.items()}
    return seen


def _looks(number: int, request: Request) -> dict:
    """A victim at the end of the planning of step `number`, counted from 0 as in pictures."""
    return {
        "step": number,
        "who": request.request_id,
        "state": str(request.state),
        "blocks": len(request.block_table),
        "host blocks": len(request.host_blocks),
        "computed tokens": request.num_computed_tokens,
        "preemptions": request.num_preemptions,
        "swaps": request.num_swaps,
    }


def served_in_turn(fair, actions: Sequence[tuple]) -> dict:
    """Who is served next, in order, and what each tenant has been charged at the end.

    Actions: ("comes", name, tenant); ("serve", tokens) admits who is first and charges so many
    prompt tokens; ("ends", name); ("preempted", name) puts it back at the head of the line.
    """
    requests, served = {}, []
    for what, *given in actions:
        if what == "comes":
            name, tenant = given
            requests[name] = Request(name, [1], tenant=tenant)
            fair.push(requests[name])
        elif what == "serve":
            first = fair.peek()
            fair.admit(first, 0.0)
            fair.charge(first, given[0], 0)
            served.append(first.request_id)
        elif what == "ends":
            fair.remove(given[0])
        else:
            fair.push(requests[given[0]], first=True)
    return {"served": [{name: 1} for name in served], "counters": dict(fair.counters)}
