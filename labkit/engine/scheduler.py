"""Which tokens are computed in the next step. No tensors, no clock: the time comes in as `now`.

There is no prefill and no decode phase, as in vLLM's V1 scheduler: in each step the computed
tokens of every request catch up with its known tokens, as far as the step's budget allows. A
long prompt takes several steps (chunked prefill: Agrawal et al., "Sarathi-Serve", 2024); a
request that generates has one known token not computed yet.
"""

import heapq
from collections import Counter
from collections.abc import Sequence

from labkit.engine.blocks import BlockPool
from labkit.engine.books import Books
from labkit.engine.limits import check_options, claim, refuse_what_never_fits, too_large
from labkit.engine.pace import Pace
from labkit.engine.plan import StepPlan
from labkit.engine.policies import FCFS
from labkit.engine.policies.preemption import Recompute
from labkit.engine.request import Request, State, StepEvent, advance, last_events, refuse_duplicate

LEAST_CHUNK = 16  # tokens of a prompt in a step, whatever the target for the gap between tokens


class Scheduler:
    """Keeps every request from `add` to its end, and who holds which blocks (`books`).

    `running` holds the admitted requests in order of admission; `policy` those that wait.
    `max_num_batched_tokens` bounds the tokens of a step, `max_num_seqs` the running requests,
    `max_model_len` prompt and output of one request. With `itl_target` (seconds) the budget of a
    step is what takes no longer, by the `pace` of the steps so far. `preemption` says whether the
    blocks of a preempted request are copied to those of `host`, as long as it has room.
    """

    def __init__(
        self,
        pool: BlockPool,
        max_num_batched_tokens: int = 512,
        max_num_seqs: int = 64,
        max_model_len: int | None = None,
        policy: FCFS | None = None,
        preemption: Recompute | None = None,
        host: BlockPool | None = None,
        itl_target: float | None = None,
    ):
        counts = {"max_num_batched_tokens": max_num_batched_tokens, "max_num_seqs": max_num_seqs}
        check_options(counts, itl_target, pool, host)
        self.pool, self.books, self.pace = pool, Books(pool, host), Pace()
        self.max_num_batched_tokens = max_num_batched_tokens
        self.max_num_seqs = max_num_seqs
        self.max_model_len = max_model_len
        self.itl_target = itl_target
        self.policy = FCFS() if policy is None else policy
        claim(self.policy)
        self.preemption = Recompute() if preemption is None else preemption
        self.running: dict[str, Request] = {}
        self.copies: dict[str, list[Request]] = {}  # parent's id → copies that wait for its prompt
        self.known: dict[str, Request] = {}  # every unfinished request
        self.deadlines: list[tuple[float, str]] = []  # a heap of (deadline, request id)

    def add(self, request: Request) -> None:
        """Puts a request in line.

        Raises ValueError when its id is in use, when prompt and `max_tokens` exceed
        `max_model_len`, when the pool could not hold it even if it were alone, and when the
        policy refuses it: for a deadline that can't be met, say.
        """
        refuse_duplicate(request, self.known)
        refuse_what_never_fits(request, self.pool, self.max_model_len)
        refusal = self.policy.refuse(request, request.arrival, self._seconds)
        if refusal:
            if not self.known:
                self.pace.doubt()
            raise ValueError(refusal)
        parent = self.known.get(request.copy_of)
        self.known[request.request_id] = request
        self._note_deadline(request)
        if parent and parent.num_computed_tokens < parent.num_prompt_tokens:
            self.copies.setdefault(parent.request_id, []).append(request)
        else:
            self.policy.push(request)

    def has_unfinished(self) -> bool:
        return bool(self.known)

    def plan(self, now: float) -> StepPlan:
        """Decides what the next step computes, and takes the blocks for it.

        The overdue end. Of the running, in the policy's order, those that generate (1 token left
        to compute) come first: they never wait for a prompt longer than one step. Then prompts
        under way, and before each the waiting requests that may preempt it (before those that
        generate only where they would use up all of the budget). What is left admits others.
        """
        plan = StepPlan(self._budget(), now)
        self._end_overdue(plan)
        generating, under_way = [], []
        for request in self.policy.in_order(self.running.values()):
            left = request.num_tokens - request.num_computed_tokens
            (generating if left == 1 else under_way).append(request)
        crowded = len(generating) >= plan.budget
        for request in generating:
            if crowded:  # they would use all of it up, and the urgent would wait
                self._admit(plan, before=request)
            self._continue(plan, request)
        for request in under_way:
            self._admit(plan, before=request)
            self._continue(plan, request)
        self._admit(plan)
        return plan

    def commit(self, plan: StepPlan, sampled: Sequence, now: float) -> list[StepEvent]:
        """Writes down what the step has computed: the one place where requests advance.

        `sampled` has an entry (`token_id`, `logprobs`, `error`) for each chunk that `samples`,
        in order. Returns the events: of those that failed in `plan`, then of each new token, for
        which the policy charges 1. Who was aborted meanwhile gets none. `pace` observes a step
        with chunks, `books` what was copied and each chunk; copies start when their prompt is
        computed. Requests that ended hold no block any more.
        """
        if plan.chunks:
            self.pace.observe(plan.num_tokens, now - plan.time)
        self.books.copied(plan)
        events = last_events(plan.failed, now)
        results = iter(sampled)
        for chunk in plan.chunks.values():
            request, result = chunk.request, next(results) if chunk.samples else None
            if request.state is State.FINISHED:  # aborted while the step was computed
                continue
            self.books.note_computed(request, chunk)
            if self.copies and chunk.end >= request.num_prompt_tokens:
                self._start_copies(request)
            if result is None:
                continue
            events.append(advance(request, result, now))
            self.policy.charge(request, 0, 1)
            if request.finish_reason:
                self._forget(request)
        return events

    def fail(self, plan: StepPlan, reason: str, now: float) -> list[StepEvent]:
        """Ends every request of a step that could not be computed; instead of `commit`."""
        self.books.copied(plan)
        for request in plan.preempted:  # what it swapped out may not have been copied
            if request.host_blocks:
                self.books.release(request)
        requests = [chunk.request for chunk in plan.chunks.values()]
        failed = [r for r in requests if r.state is not State.FINISHED]  # by an abort meanwhile
        for request in failed:
            request.finish("error", reason)
            self._forget(request)
        return last_events([*plan.failed, *failed], now)

    def abort(self, request_id: str) -> bool:
        """Ends a request in any state and frees its blocks. False when it had ended already."""
        request = self.known.get(request_id)
        if request is None:
            return False
        request.finish("abort")
        self._forget(request)
        return True

    def _budget(self) -> int:
        """The most tokens of the next step; those that generate get theirs in any case."""
        within = self.itl_target and self.pace.tokens_within(self.itl_target)
        if within is None or not any(r.output_token_ids for r in self.running.values()):
            return self.max_num_batched_tokens  # no target, no step yet, or nobody generates
        return min(max(within, len(self.running) + LEAST_CHUNK), self.max_num_batched_tokens)

    def _seconds(self, request: Request) -> float:
        """How long a waiting request takes by the pace so far, if it were alone."""
        return self.pace.seconds(request, self.books.find_computed(request, self.running)[1])

    def _note_deadline(self, request: Request) -> None:
        if request.deadline is not None:
            heapq.heappush(self.deadlines, (request.deadline, request.request_id))
        if len(self.deadlines) > 2 * len(self.known) + 64:  # most are of requests that ended
            open_ones = (r for r in self.known.values() if r.deadline is not None)
            self.deadlines = [(r.deadline, r.request_id) for r in open_ones]
            heapq.heapify(self.deadlines)

    def _end_overdue(self, plan: StepPlan) -> None:
        """Ends the requests whose deadline has passed, in whatever state they are."""
        while self.deadlines and self.deadlines[0][0] < plan.time:
            deadline, request_id = heapq.heappop(self.deadlines)
            request = self.known.get(request_id)
            if request and request.deadline == deadline:  # no stranger with the same id
                late = plan.time - deadline
                self._end(plan, request, "deadline", f"its deadline passed {late:.3f} s ago")

    def _continue(self, plan: StepPlan, request: Request) -> None:
        """Plans the next tokens of a running request, preempting others if it must."""
        if plan.budget == 0 or request.state is not State.RUNNING:
            return
        num_tokens = min(request.num_tokens - request.num_computed_tokens, plan.budget)
        if self._fails_alone(plan, request, request.num_computed_tokens + num_tokens):
            return
        needed = self.books.needed(request, num_tokens)
        while needed > self.pool.num_free:
            victim = self.policy.victim(self.running.values())
            self._preempt(plan, victim)
            if victim is request:
                return
            needed = self.books.needed(request, num_tokens)  # one may be shared no longer
        self.books.take(plan, request, num_tokens, needed)

    def _admit(self, plan: StepPlan, before: Request | None = None) -> None:
        """Admits waiting requests while budget, slots and blocks for all their tokens are left;
        with `before`, only those that may preempt this running one."""
        while plan.budget > 0:
            request = self.policy.peek()
            if request is None or before and not self.policy.may_preempt(request, before):
                return
            if self._fails_alone(plan, request, request.num_tokens):
                continue
            if request.num_preemptions == 0:
                refusal = self.policy.refuse(request, plan.time, self._seconds)
                if refusal:
                    self._end(plan, request, "deadline", refusal)
                    continue
            found = self._find_room(plan, request)
            if found is None:
                return
            self._start(plan, request, *found)

    def _find_room(self, plan: StepPlan, request: Request) -> tuple[list[int], int] | None:
        """A slot, and blocks for all tokens of a waiting request: what it shares, as
        `Books.find_computed` gives it. Preempts those that it may, if that is enough; else None."""
        while True:
            shared, num_cached = self.books.find_computed(request, self.running)
            missing = self.books.missing(request, shared, num_cached)
            if missing <= 0 and len(self.running) < self.max_num_seqs:
                return shared, num_cached
            victims = [r for r in self.running.values() if self.policy.may_preempt(request, r)]
            holders = Counter(block for victim in victims for block in victim.block_table)
            for block in shared:  # it is counted as there already
                del holders[block]
            freed = sum(self.pool.ref_counts[block] == n for block, n in holders.items())
            if not victims or freed < missing:
                return None
            self._preempt(plan, self.policy.victim(victims))

    def _start(self, plan: StepPlan, request: Request, shared: list[int], num_cached: int) -> None:
        """A request that waited runs, and computes as many tokens as the budget has, beyond the
        `num_cached` that the `shared` blocks hold. It is charged for its prompt the first time,
        and notes then what was cached: after a preemption it finds what it computed itself."""
        self.policy.admit(request, plan.time)
        if request.num_preemptions == 0:
            self.policy.charge(request, request.num_prompt_tokens, 0)
            request.num_cached_tokens = num_cached
        self.books.start(plan, request, shared, num_cached)
        request.state = State.RUNNING
        self.running[request.request_id] = request
        num_tokens = min(request.num_tokens - request.num_computed_tokens, plan.budget)
        self.books.take(plan, request, num_tokens, self.books.needed(request, num_tokens))

    def _preempt(self, plan: StepPlan, victim: Request) -> None:
        """Takes slot and blocks from `victim`; what this step planned for it is taken back."""
        plan.remove(victim)
        plan.preempted.append(victim)
        del self.running[victim.request_id]
        if self.books.can_swap_out(plan, victim) and self.preemption.swaps(victim, self.pace):
            self.books.swap_out(plan, victim)
        else:
            self.books.release(victim)
        victim.state = State.PREEMPTED
        victim.num_preemptions += 1
        self.policy.push(victim, first=True)

    def _start_copies(self, parent: Request) -> None:
        for request in reversed(self.copies.pop(parent.request_id, [])):
            self.policy.push(request, first=True)

    def _fails_alone(self, plan: StepPlan, request: Request, num_tokens: int) -> bool:
        """Fails a request that needs more than the whole pool: preempting others can't help."""
        error = too_large(request, num_tokens, self.pool)
        if error:
            self._end(plan, request, "error", error)
        return error is not None

    def _end(self, plan: StepPlan, request: Request, reason: str, error: str) -> None:
        request.finish(reason, error)
        self._forget(request)
        plan.failed.append(request)

    def _forget(self, request: Request) -> None:
        """Removes a request that has ended from wherever it is, and frees its blocks.

        It may be in any state: running, in the policy's line (waiting, or preempted, with what it
        computed perhaps on the host), or a copy in `copies` that waits for its parent's prompt.
        Copies that wait for *its* prompt get in line now (`_start_copies`): nobody else will
        compute it for them. Blocks of both kinds are given back by `books.release`. The policy
        hears of every end (`remove`), also of one that runs: it may keep an account of it.
        """
        del self.known[request.request_id]
        self._start_copies(request)
        self.running.pop(request.request_id, None)
        self.policy.remove(request.request_id)
        if request in self.copies.get(request.copy_of, ()):
            self.copies[request.copy_of].remove(request)
        self.books.release(request)
