"""Which tokens are computed in the next step. No tensors, no clock: the time comes in as `now`.

There is no prefill and no decode phase, as in vLLM's V1 scheduler: in each step the computed
tokens of every request catch up with its known tokens, as far as the step's budget allows. A
long prompt takes several steps (chunked prefill: Agrawal et al., "Sarathi-Serve", 2024); a
request that generates has one known token not computed yet.
"""

from collections.abc import Sequence

from labkit.engine.blocks import BlockPool, hash_block, root_hash
from labkit.engine.plan import Chunk, StepPlan
from labkit.engine.policies import FCFS
from labkit.engine.request import Request, State, StepEvent, advance, refuse_duplicate


class Scheduler:
    """Keeps every request from `add` to its end, and the books of the block pool.

    `running` holds the admitted requests in order of admission; `policy` those that wait.
    `max_num_batched_tokens` bounds the tokens of a step, `max_num_seqs` the running requests,
    `max_model_len` prompt and output of one request.
    """

    def __init__(
        self,
        pool: BlockPool,
        max_num_batched_tokens: int = 512,
        max_num_seqs: int = 64,
        max_model_len: int | None = None,
        policy: FCFS | None = None,
    ):
        for name, value in [
            ("max_num_batched_tokens", max_num_batched_tokens),
            ("max_num_seqs", max_num_seqs),
        ]:
            if value < 1:
                raise ValueError(f"{name} is {value}; at least 1 is needed to make progress")
        self.pool = pool
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_num_seqs = max_num_seqs
        self.max_model_len = max_model_len
        self.policy = FCFS() if policy is None else policy
        self.running: dict[str, Request] = {}
        self.copies: dict[str, list[Request]] = {}  # parent's id → copies that wait for its prompt
        self.known: dict[str, Request] = {}  # every unfinished request

    def add(self, request: Request) -> None:
        """Puts a request in line.

        Raises ValueError when its id is in use, when prompt and `max_tokens` exceed
        `max_model_len`, and when the pool could not hold it even if it were alone.
        """
        refuse_duplicate(request, self.known)
        self._refuse_what_never_fits(request)
        parent = self.known.get(request.copy_of)
        self.known[request.request_id] = request
        if parent and parent.num_computed_tokens < parent.num_prompt_tokens:
            self.copies.setdefault(parent.request_id, []).append(request)
        else:
            self.policy.push(request)

    def has_unfinished(self) -> bool:
        return bool(self.known)

    def plan(self, now: float) -> StepPlan:
        """Decides what the next step computes, and takes the blocks for it.

        Running requests come first, in order of admission, so that those that generate never
        wait for a prompt longer than one step. What is left of the budget admits waiting ones.
        """
        plan = StepPlan(self.max_num_batched_tokens)
        for request in list(self.running.values()):
            if plan.budget > 0 and request.state is State.RUNNING:
                self._continue(plan, request)
        if not plan.preempted:  # blocks just taken from somebody are not for a newcomer
            self._admit(plan)
        return plan

    def commit(self, plan: StepPlan, sampled: Sequence, now: float) -> list[StepEvent]:
        """Writes down what the step has computed: the one place where requests advance.

        `sampled` has an entry (`token_id`, `logprobs`, `error`) for each chunk that `samples`,
        in order. Returns the events of the step. Requests that ended hold no block any more.
        """
        events = [
            StepEvent(r.request_id, None, "error", now, error=r.error) for r in plan.failed
        ]
        results = iter(sampled)
        for chunk in plan.chunks.values():
            request, result = chunk.request, next(results) if chunk.samples else None
            if request.state is State.FINISHED:  # aborted while the step was computed
                continue
            self._note_computed(request, chunk)
            if result is None:
                continue
            events.append(advance(request, result, now))
            if request.finish_reason:
                self._forget(request)
        return events

    def fail(self, plan: StepPlan, reason: str, now: float) -> list[StepEvent]:
        """Ends every request of a step that could not be computed; instead of `commit`."""
        failed = [c.request for c in plan.chunks.values() if c.request.request_id in self.known]
        for request in failed:
            request.finish("error", reason)
            self._forget(request)
        ended = [*plan.failed, *failed]
        return [StepEvent(r.request_id, None, "error", now, error=r.error) for r in ended]

    def abort(self, request_id: str) -> bool:
        """Ends a request in any state and frees its blocks. False when it had ended already."""
        request = self.known.get(request_id)
        if request is None:
            return False
        request.finish("abort")
        self._forget(request)
        return True

    def _continue(self, plan: StepPlan, request: Request) -> None:
        """Plans the next tokens of a running request, preempting others if it must."""
        num_tokens = min(request.num_tokens - request.num_computed_tokens, plan.budget)
        if self._fails_alone(plan, request, request.num_computed_tokens + num_tokens):
            return
        needed = self._blocks_needed(request, num_tokens)
        while needed > self.pool.num_free:
            victim = self.policy.victim(self.running)
            self._preempt(plan, victim)
            if victim is request:
                return
            needed = self._blocks_needed(request, num_tokens)  # one may be shared no longer
        self._take_blocks(plan, request, num_tokens, needed)

    def _admit(self, plan: StepPlan) -> None:
        """Admits waiting requests while budget, slots and blocks for all their tokens are left."""
        while plan.budget > 0 and len(self.running) < self.max_num_seqs:
            request = self.policy.peek()
            if request is None:
                return
            if self._fails_alone(plan, request, request.num_tokens):
                continue
            shared, num_cached = self._find_computed(request)
            writes_shared = num_cached < len(shared) * self.pool.block_size
            needed = self.pool.blocks_for(request.num_tokens) - len(shared) + writes_shared
            if needed + self.pool.num_free_in(shared) > self.pool.num_free:
                return
            self.policy.remove(request.request_id)
            self.pool.share(shared)
            request.block_table = list(shared)
            request.num_computed_tokens = num_cached
            if request.num_preemptions == 0:  # later it finds what it computed itself
                request.num_cached_tokens = num_cached
            request.state = State.RUNNING
            self.running[request.request_id] = request
            num_tokens = min(request.num_tokens - num_cached, plan.budget)
            self._take_blocks(plan, request, num_tokens, self._blocks_needed(request, num_tokens))

    def _find_computed(self, request: Request) -> tuple[list[int], int]:
        """Blocks that hold the beginning of a waiting request, and how many of its tokens.

        At least one token is left to compute: without it there would be no logits.
        """
        shared = []
        if self.pool.prefix_caching:
            num_full = (request.num_tokens - 1) // self.pool.block_size
            shared = self.pool.find(self._hashes(request, num_full))
        num_found, num_shared = len(shared) * self.pool.block_size, request.num_prompt_tokens - 1
        parent = self._parent(request)
        if parent is None or num_found >= num_shared:
            return shared, num_found
        return parent.block_table[: self.pool.blocks_for(num_shared)], num_shared

    def _parent(self, request: Request) -> Request | None:
        """The running request that `request` is a copy of, if its prompt is computed.

        Its id may have been given to a stranger since, and a stranger's blocks are not shared.
        """
        parent = self.running.get(request.copy_of)
        if parent is None or parent.num_computed_tokens < parent.num_prompt_tokens:
            return None
        equal = parent.prompt_token_ids == request.prompt_token_ids
        return parent if equal and parent.cache_salt == request.cache_salt else None

    def _hashes(self, request: Request, count: int) -> list[bytes]:
        """The hashes of the first `count` blocks of a request, which must be full."""
        hashes, size = request.block_hashes, self.pool.block_size
        for i in range(len(hashes), count):
            parent = hashes[-1] if hashes else root_hash(request.cache_salt)
            hashes.append(hash_block(parent, request.tokens_between(i * size, (i + 1) * size)))
        return hashes[:count]

    def _writes_shared(self, request: Request) -> bool:
        """Whether the next token goes to a block that somebody else holds too."""
        index, table = request.num_computed_tokens // self.pool.block_size, request.block_table
        return index < len(table) and self.pool.ref_counts[table[index]] > 1

    def _blocks_needed(self, request: Request, num_tokens: int) -> int:
        end = request.num_computed_tokens + num_tokens
        new = self.pool.blocks_for(end) - len(request.block_table)
        return max(new, 0) + self._writes_shared(request)

    def _take_blocks(self, plan: StepPlan, request: Request, num_tokens: int, needed: int) -> None:
        """Gives a request the `needed` blocks for its next `num_tokens`, and plans these.

        Nobody writes to a block that another one holds: it is copied first (copy on write).
        """
        if needed:
            blocks = self.pool.allocate(needed)
            if self._writes_shared(request):
                index = request.num_computed_tokens // self.pool.block_size
                original, copy = request.block_table[index], blocks.pop(0)
                plan.block_copies.append((original, copy))
                request.block_table[index] = copy
                self.pool.free([original])
            request.block_table += blocks
        plan.add(request, num_tokens)

    def _preempt(self, plan: StepPlan, victim: Request) -> None:
        """Takes all blocks from `victim`, which will be computed again from its known tokens."""
        plan.remove(victim)
        plan.preempted.append(victim)
        del self.running[victim.request_id]
        self._release(victim)
        victim.state = State.PREEMPTED
        victim.num_preemptions += 1
        self.policy.push(victim, first=True)

    def _release(self, request: Request) -> None:
        self.pool.free(request.block_table)
        request.block_table = []
        request.num_computed_tokens = 0

    def _note_computed(self, request: Request, chunk: Chunk) -> None:
        """The chunk's tokens are in the cache: blocks that it filled can be found from now on."""
        first, last = chunk.start // self.pool.block_size, chunk.end // self.pool.block_size
        request.num_computed_tokens = chunk.end
        if self.pool.prefix_caching and last > first:
            hashes = self._hashes(request, last)
            for i in range(first, last):
                self.pool.register(request.block_table[i], hashes[i])
        if self.copies and chunk.end >= request.num_prompt_tokens:
            self._start_copies(request)

    def _start_copies(self, parent: Request) -> None:
        for request in reversed(self.copies.pop(parent.request_id, [])):
            self.policy.push(request, first=True)

    def _forget(self, request: Request) -> None:
        """Removes a request that has ended from wherever it is, and frees its blocks."""
        del self.known[request.request_id]
        self._start_copies(request)
        self.running.pop(request.request_id, None)
        self.policy.remove(request.request_id)
        if request in self.copies.get(request.copy_of, ()):
            self.copies[request.copy_of].remove(request)
        self._release(request)

    def _fails_alone(self, plan: StepPlan, request: Request, num_tokens: int) -> bool:
        """Fails a request that needs more than the whole pool: preempting others can't help."""
        if num_tokens <= self.pool.num_blocks * self.pool.block_size:
            return False
        needed = self.pool.blocks_for(num_tokens)
        request.finish(
            "error",
            f"out of KV blocks after {len(request.output_token_ids)} output tokens: {num_tokens} "
            f"tokens need {needed} blocks of {self.pool.block_size}, the pool has "
            f"{self.pool.num_blocks}; start the engine with more, or ask for fewer tokens",
        )
        self._forget(request)
        plan.failed.append(request)
        return True

    def _refuse_what_never_fits(self, request: Request) -> None:
        asked = request.num_prompt_tokens + request.max_tokens
        if self.max_model_len is not None and asked > self.max_model_len:
            raise ValueError(
                f"request {request.request_id!r}: {request.num_prompt_tokens} prompt tokens and "
                f"max_tokens {request.max_tokens} make {asked}, max_model_len is "
                f"{self.max_model_len}; shorten the prompt or ask for fewer tokens"
            )
        # The last output token is never fed back, so it needs no slot.
        needed = self.pool.blocks_for(request.least_tokens - 1)
        if needed > self.pool.num_blocks:
            raise ValueError(
                f"request {request.request_id!r} can never fit: {request.num_prompt_tokens} prompt "
                f"tokens and at least {request.least_tokens - request.num_prompt_tokens} more need "
                f"{needed} KV blocks of {self.pool.block_size} tokens, the pool has "
                f"{self.pool.num_blocks}; shorten it, or start the engine with more blocks"
            )
