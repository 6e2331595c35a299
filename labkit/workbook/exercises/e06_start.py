"""Notebook 06, a request that waited runs: `Scheduler._start`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake

STEPS = "tokens of each step"


def _draw(expected, found):
    return drawings.schedule(expected[STEPS], found.get(STEPS))


def _started(prompt, budget, *, outputs=0, preemptions=0, cached=0, on_host=0, copy_of=False):
    """`_start` of one waiting request with a budget, the first `cached` tokens being there."""

    def observe(part):
        from labkit.engine.plan import StepPlan
        from labkit.workbook.fakes_continuous import Drive, NotingPolicy

        drive = Drive(part, host_blocks=4, policy=NotingPolicy())
        scheduler, pool = drive.scheduler, drive.pool
        shared = pool.allocate(pool.blocks_for(cached))
        if not copy_of:
            pool.free(shared)  # found in the prefix cache, held by nobody
        request = drive.add("a", prompt, 32)
        request.output_token_ids = list(range(1000, 1000 + outputs))
        request.num_preemptions, request.num_cached_tokens = preemptions, 7 if preemptions else 0
        if on_host:
            request.host_blocks = scheduler.books.host.allocate(pool.blocks_for(on_host))
            request.num_computed_tokens = on_host
        plan = StepPlan(budget, 5.0)
        scheduler._start(plan, request, shared, cached)
        return {
            STEPS: [{name: chunk.num_tokens for name, chunk in plan.chunks.items()}],
            "from position": [chunk.start for chunk in plan.chunks.values()],
            "budget left": plan.budget,
            "blocks": {"a": request.block_table},
            "copied blocks": [*plan.block_copies, *plan.swap_in],
            "tokens computed": request.num_computed_tokens,
            "tokens from the cache": request.num_cached_tokens,
            "state": str(request.state),
            "running": list(scheduler.running),
            "waiting": list(scheduler.policy.waiting),
            "admitted": scheduler.policy.admitted,
            "charged": scheduler.policy.charged,
        }

    return observe


def _start_of(tokens, left, blocks, *, start=0, copied=(), cached=0, charged=()):
    return {
        STEPS: [{"a": tokens}],
        "from position": [start],
        "budget left": left,
        "blocks": {"a": blocks},
        "copied blocks": [list(pair) for pair in copied],
        "tokens computed": start,
        "tokens from the cache": cached,
        "state": "running",
        "running": ["a"],
        "waiting": [],
        "admitted": [["a", 5.0]],
        "charged": [["a", *counts] for counts in charged],
    }


def _case(name, observe, expected):
    return Case(name, observe, expected, draw=_draw)


START = Exercise(
    id="06.4",
    module="labkit.engine.scheduler",
    symbol="Scheduler._start",
    core=False,
    minutes=25,
    difficulty=2,
    cases=(
        _case("whole_prompt", _started(6, 16), _start_of(6, 10, [0, 1], charged=[(6, 0)])),
        _case("chunk", _started(10, 4), _start_of(4, 0, [0], charged=[(10, 0)])),
        _case(
            "cached",
            _started(10, 16, cached=8),
            _start_of(2, 14, [0, 1, 2], start=8, cached=8, charged=[(10, 0)]),
        ),
        _case(
            "cached_chunk",
            _started(10, 4, cached=4),
            _start_of(4, 0, [0, 1], start=4, cached=4, charged=[(10, 0)]),
        ),
        _case(
            "after_preemption",
            _started(6, 16, outputs=3, preemptions=1),
            _start_of(9, 7, [0, 1, 2], cached=7),
        ),
        _case(
            "preempted_in_its_prompt",
            _started(6, 16, preemptions=1),
            _start_of(6, 10, [0, 1], cached=7),
        ),
        _case(
            "room_in_its_last_block",
            _started(6, 16, outputs=2, preemptions=1, on_host=6),
            _start_of(2, 14, [0, 1], start=6, copied=[(0, 0), (1, 1)], cached=7),
        ),
        _case(
            "from_the_host",
            _started(6, 16, outputs=3, preemptions=1, on_host=8),
            _start_of(1, 15, [0, 1, 2], start=8, copied=[(0, 0), (1, 1)], cached=7),
        ),
        _case(
            "copy",
            _started(6, 16, cached=5, copy_of=True),
            _start_of(1, 15, [0, 2], start=5, copied=[(1, 2)], cached=5, charged=[(6, 0)]),
        ),
    ),
    mistakes=(
        Mistake(
            "whole_prompt_at_once",
            (
                (
                    "min(request.num_tokens - request.num_computed_tokens, plan.budget)",
                    "request.num_tokens - request.num_computed_tokens",
                ),
            ),
        ),
        Mistake(
            "cached_computed_again",
            (
                (
                    "min(request.num_tokens - request.num_computed_tokens, plan.budget)",
                    "min(request.num_tokens, plan.budget)",
                ),
            ),
        ),
        Mistake(
            "output_forgotten",
            (("min(request.num_tokens -", "min(request.num_prompt_tokens -"),),
        ),
        Mistake("still_in_line", (("    self.policy.admit(request, plan.time)\n", ""),)),
        Mistake("charged_again", (("if request.num_preemptions == 0:", "if True:"),)),
        Mistake(
            "blocks_for_all",
            (
                (
                    "self.books.needed(request, num_tokens))",
                    "self.books.needed("
                    "request, request.num_tokens - request.num_computed_tokens))",
                ),
            ),
        ),
        Mistake(
            "computed_already",
            (
                (
                    "self.books.needed(request, num_tokens))",
                    "self.books.needed(request, num_tokens))\n"
                    "    request.num_computed_tokens += num_tokens",
                ),
            ),
        ),
        Mistake("not_running", (("    request.state = State.RUNNING\n", ""),)),
    ),
)

EXERCISES = (START,)
