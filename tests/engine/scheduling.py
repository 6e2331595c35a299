"""Drives a Scheduler with made-up tokens in place of a model, and never trusts it.

The memory of this engine holds, for each slot, the whole text up to the token written there.
So each step can check that a request reads through its block table what it has written or what
an equal beginning has: wrong sharing, a missing copy and an early eviction all show.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from labkit.engine.blocks import BlockPool, hash_block, root_hash
from labkit.engine.request import Request, State
from labkit.engine.scheduler import Scheduler, StepPlan

EOS = 99


class Sampled(NamedTuple):
    """Like `labkit.model.sampling.Sampled`, which needs torch."""

    token_id: int | None
    logprobs: None = None
    error: str | None = None


def count_up(request: Request) -> int | str:
    """Outputs 1000, 1001, …: a stop token never comes."""
    return 1000 + len(request.output_token_ids)


class FakeEngine:
    """`next_token` gives a request's next token, or as a text the reason why there is none.

    Each step checks the plan, the memory and the books, whatever the test is about.
    """

    def __init__(
        self,
        num_blocks: int = 16,
        block_size: int = 4,
        *,
        prefix_caching: bool = True,
        next_token: Callable[[Request], int | str] = count_up,
        num_host_blocks: int = 0,
        **limits,
    ):
        self.pool = BlockPool(num_blocks, block_size, prefix_caching)
        host = BlockPool(num_host_blocks, block_size, False) if num_host_blocks else None
        self.scheduler = Scheduler(self.pool, host=host, **limits)
        self.host_memory: dict[tuple[int, int], tuple] = {}
        self.next_token = next_token
        self.memory: dict[tuple[int, int], tuple] = {}  # (block, offset) → salt, tokens up to it
        self.events, self.num_steps, self.num_preemptions = [], 0, 0
        self.plan: StepPlan | None = None  # the last one

    def add(self, request_id: str, prompt: list[int] | int, max_tokens: int = 4, **fields):
        """Adds a request; a number for a prompt asks for so many tokens, all different."""
        prompt = list(range(100, 100 + prompt)) if isinstance(prompt, int) else prompt
        request = Request(request_id, prompt, max_tokens=max_tokens, **fields)
        request.prepare(frozenset({EOS}), default_seed=0)
        self.scheduler.add(request)
        return request

    def step(self, meanwhile: Callable[[], object] | None = None) -> dict[str, int]:
        """One step; `meanwhile` happens while it is computed. Returns the tokens of each id."""
        self.num_steps += 1
        self.plan = plan = self.scheduler.plan(now=self.num_steps)
        self.num_preemptions += len(plan.preempted)
        schedule = {name: chunk.num_tokens for name, chunk in plan.chunks.items()}
        check_plan(self.scheduler, plan)
        check_books(self.scheduler, plan.swap_in)
        self.compute(plan)
        results = [self.next_token(c.request) for c in plan.chunks.values() if c.samples]
        sampled = [
            Sampled(None, error=result) if isinstance(result, str) else Sampled(result)
            for result in results
        ]
        if meanwhile:
            meanwhile()
        self.events += self.scheduler.commit(plan, sampled, now=self.num_steps)
        check_books(self.scheduler)
        self.check_cache()
        return schedule

    def run(self, most_steps: int = 1000) -> list[dict[str, int]]:
        """Steps until all requests have ended; fails if that takes more than `most_steps`."""
        schedules = []
        while self.scheduler.has_unfinished():
            assert len(schedules) < most_steps, f"unfinished after {most_steps} steps"
            schedules.append(self.step())
        return schedules

    def compute(self, plan: StepPlan) -> None:
        """What a runner does: the copies, then all writes, then all reads."""
        memory, host = self.memory, self.host_memory
        for pairs, there, here in [
            (plan.swap_out, memory, host),
            (plan.swap_in, host, memory),
            (plan.block_copies, memory, memory),
        ]:
            for source, target in pairs:
                for offset in range(self.pool.block_size):
                    here[target, offset] = there.get((source, offset), ())
        written = set()
        for chunk in plan.chunks.values():
            for position in range(chunk.start, chunk.end):
                slot = self.slot(chunk.request, position)
                assert slot not in written, f"two tokens are written to slot {slot}"
                written.add(slot)
                self.memory[slot] = text_up_to(chunk.request, position)
        for chunk in plan.chunks.values():
            for position in range(chunk.end):
                found = self.memory.get(self.slot(chunk.request, position))
                wanted = text_up_to(chunk.request, position)
                assert found == wanted, (
                    f"{chunk.request.request_id} reads {found} at {position}, wants {wanted}"
                )

    def slot(self, request: Request, position: int) -> tuple[int, int]:
        index, offset = divmod(position, self.pool.block_size)
        return request.block_table[index], offset

    def check_cache(self) -> None:
        """A block that can be found contains what its hash promises."""
        size = self.pool.block_size
        for block_hash, block_id in self.pool.block_of.items():
            assert self.pool.hash_of[block_id] == block_hash
            salt, *tokens = self.memory[block_id, size - 1]
            assert block_hash == chain(salt, tokens, size)[-1]

    def tokens_of(self, request_id: str) -> list[int]:
        tokens = [e.token_id for e in self.events if e.request_id == request_id]
        return [token for token in tokens if token is not None]

    def ends(self) -> dict[str, str]:
        """Request id → finish reason, in the order in which requests ended."""
        return {e.request_id: e.finish_reason for e in self.events if e.finish_reason}


def text_up_to(request: Request, position: int) -> tuple:
    return (request.cache_salt, *request.token_ids[: position + 1])


def chain(salt: str, tokens: list[int], size: int) -> list[bytes]:
    """The hashes of the full blocks of `tokens`."""
    hashes, parent = [], root_hash(salt)
    for start in range(0, len(tokens) - size + 1, size):
        parent = hash_block(parent, tokens[start : start + size])
        hashes.append(parent)
    return hashes


def check_books(scheduler: Scheduler, returning: Sequence[tuple[int, int]] = ()) -> None:
    """Blocks are counted right, and nobody is in two places. `returning` is swapped in."""
    pool, waiting, host = scheduler.pool, scheduler.policy.waiting, scheduler.books.host
    holders = Counter(b for r in scheduler.known.values() for b in r.block_table)
    assert pool.ref_counts == [holders[b] for b in range(pool.num_blocks)]
    assert sorted(pool.free_blocks) == [b for b in range(pool.num_blocks) if not holders[b]]
    assert pool.num_free + pool.num_used == pool.num_blocks
    copies = [r.request_id for waiters in scheduler.copies.values() for r in waiters]
    assert sorted([*scheduler.running, *waiting, *copies]) == sorted(scheduler.known)
    assert len(scheduler.running) <= scheduler.max_num_seqs
    for request in scheduler.known.values():
        assert 0 <= request.num_computed_tokens <= request.num_tokens
        assert len(request.output_token_ids) < request.max_tokens
        assert (request.state is State.RUNNING) == (request.request_id in scheduler.running)
        if request.state is not State.RUNNING:
            assert request.block_table == []
            assert len(request.host_blocks) == pool.blocks_for(request.num_computed_tokens)
        else:
            assert request.host_blocks == []
    if host:
        swapped = Counter(b for r in scheduler.known.values() for b in r.host_blocks)
        held = {b for b in range(host.num_blocks) if host.ref_counts[b]}
        assert set(swapped.values()) <= {1} and set(swapped) <= held
        # Those of requests that come back in this step are free when it is over.
        assert held - set(swapped) == {block for block, _ in returning}


def check_plan(scheduler: Scheduler, plan: StepPlan) -> None:
    pool, size = scheduler.pool, scheduler.pool.block_size
    budget = scheduler.max_num_batched_tokens
    assert plan.num_tokens <= budget and plan.budget == budget - plan.num_tokens
    assert len(plan.chunks) <= scheduler.max_num_seqs
    assert plan.chunks.keys() <= scheduler.running.keys()
    if scheduler.max_num_batched_tokens > scheduler.max_num_seqs:  # nobody waits for a prompt
        left_out = [r for r in scheduler.running.values() if r.request_id not in plan.chunks]
        assert not any(r.num_tokens - r.num_computed_tokens == 1 for r in left_out)
    for name, chunk in plan.chunks.items():
        request = scheduler.running[name]
        assert chunk.request is request and chunk.start == request.num_computed_tokens
        assert chunk.num_tokens >= 1 and chunk.end <= request.num_tokens
        assert len(request.block_table) == pool.blocks_for(chunk.end)
    # Copies may be carried out in any order, or all at once.
    sources = {source for source, _ in plan.block_copies}
    targets = [target for _, target in plan.block_copies]
    assert len(set(targets)) == len(targets) and not sources & set(targets)
    for request in scheduler.running.values():
        hashes = chain(request.cache_salt, request.token_ids, size)
        for index, block_id in enumerate(request.block_table):
            if pool.ref_counts[block_id] > 1:
                assert (index + 1) * size <= request.num_computed_tokens, "a shared block is open"
                if pool.prefix_caching and not any_copy(scheduler, block_id):
                    assert pool.hash_of[block_id] == hashes[index]
    check_room_is_used(scheduler, plan)


def may_preempt(scheduler: Scheduler, waiting: Request, running: Request) -> bool:
    return scheduler.policy.may_preempt(waiting, running)


def any_copy(scheduler: Scheduler, block_id: int) -> bool:
    return any(r.copy_of and block_id in r.block_table for r in scheduler.running.values())


def check_room_is_used(scheduler: Scheduler, plan: StepPlan) -> None:
    """The first in line waits only where budget, slots or blocks have run out, and nobody runs
    whose slot it may take."""
    pool, first = scheduler.pool, scheduler.policy.peek()
    if first is None or plan.budget == 0:
        return
    if len(scheduler.running) == scheduler.max_num_seqs:
        if pool.blocks_for(first.num_tokens) <= pool.num_free:
            assert not any(map(partial(may_preempt, scheduler, first), scheduler.running.values()))
        return
    if first.host_blocks:
        assert pool.blocks_for(first.num_tokens) > pool.num_free
        return
    num_full = (first.num_tokens - 1) // pool.block_size
    found = pool.find(chain(first.cache_salt, first.token_ids, pool.block_size)[:num_full])
    held = len(found) - pool.num_free_in(found)
    assert pool.blocks_for(first.num_tokens) - held > pool.num_free, (
        f"{first.request_id} could run: {first.num_tokens} tokens, {held} of its blocks are "
        f"held, {pool.num_free} are free"
    )
