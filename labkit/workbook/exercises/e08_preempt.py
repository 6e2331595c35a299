"""Notebook 08, taking a place away: `Scheduler._preempt`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake


def _serve(*asked, **options):
    def observe(part):
        from labkit.workbook.fakes_priorities import scheduled

        return scheduled(part.Scheduler, asked, **options)

    return observe


def _draw(expected, found):
    return drawings.schedule(expected["steps"], found["steps"])


def _step(tokens, *preempted):
    return {"tokens": tokens, "preempted": [*preempted]}


def _victim(step, who, preemptions=1, host_blocks=0, computed=0):
    return {  # shown from 0 on, as in pictures
        "step": step - 1, "who": who, "state": "preempted", "blocks": 0, "host blocks": host_blocks,
        "computed tokens": computed, "preemptions": preemptions, "swaps": int(host_blocks > 0),
    }  # fmt: skip


def _outcome(steps, left, used, victims, lengths):
    return {
        "steps": steps, "budget left": left, "blocks in use": used, "victims": victims,
        "output": {name: [*range(1000, 1000 + n)] for name, n in lengths.items()},
    }  # fmt: skip


# Blocks have 4 tokens. In each case `asked` is (comes in step, name, prompt, max_tokens, priority).
SWAPPED = (1, "slow", 6, 4, 5), (3, "urgent", 4, 1, 0)
COMPUTED_AGAIN = _outcome(
    [
        _step({"slow": 6}), _step({"slow": 1}), _step({"urgent": 4}, "slow"), _step({"slow": 8}),
        _step({"slow": 1}),
    ],
    [58, 63, 60, 56, 63], [2, 2, 1, 2, 3], [_victim(3, "slow")], {"slow": 4, "urgent": 1},
)  # fmt: skip
PREEMPT = Exercise(
    id="08.1",
    module="labkit.engine.scheduler",
    symbol="Scheduler._preempt",
    core=True,
    minutes=25,
    difficulty=2,
    cases=(
        # b's fifth token needs a second block, and a has just taken the last one
        Case(
            "itself",
            _serve((1, "a", 4, 6, 0), (1, "b", 4, 4, 0), num_blocks=3, budget=16, fcfs=True),
            _outcome(
                [
                    _step({"a": 4, "b": 4}), _step({"a": 1}, "b"), *[_step({"a": 1})] * 4,
                    _step({"b": 5}), _step({"b": 1}), _step({"b": 1}),
                ],
                [8, 15, 15, 15, 15, 15, 11, 15, 15], [2, 2, 2, 2, 2, 3, 2, 2, 2],
                [_victim(2, "b")], {"a": 6, "b": 4},
            ),
            _draw,
        ),
        Case(
            "head_of_line",
            _serve(
                (1, "a", 4, 3, 0), (1, "b", 4, 3, 0), (1, "c", 4, 1, 0), num_blocks=3, slots=2,
                fcfs=True,
            ),
            _outcome(
                [
                    _step({"a": 4, "b": 4}), _step({"a": 1}, "b"), _step({"a": 1}),
                    _step({"b": 5, "c": 4}), _step({"b": 1}),
                ],
                [56, 63, 63, 55, 63], [2, 2, 2, 3, 2], [_victim(2, "b")],
                {"a": 3, "b": 3, "c": 1},
            ),
            _draw,
        ),
        Case(
            "two_victims",
            _serve(
                (1, "a", 4, 3, 0), (1, "b", 4, 2, 0), (1, "c", 4, 2, 0), num_blocks=3, fcfs=True
            ),
            _outcome(
                [
                    _step({"a": 4, "b": 4, "c": 4}), _step({"a": 1}, "c", "b"), _step({"a": 1}),
                    _step({"b": 5}), _step({"c": 5}),
                ],
                [52, 63, 63, 59, 59], [3, 2, 2, 2, 2], [_victim(2, "c"), _victim(2, "b")],
                {"a": 3, "b": 2, "c": 2},
            ),
            _draw,
        ),
        # batch has its token in step 3 already when the agent's prompt needs two blocks more
        Case(
            "already_scheduled",
            _serve((1, "batch", 7, 3, 5), (2, "agent", 16, 2, 1), num_blocks=6, budget=8),
            _outcome(
                [
                    _step({"batch": 7}), _step({"batch": 1, "agent": 7}),
                    _step({"agent": 7}, "batch"), _step({"agent": 2}), _step({"agent": 1}),
                    _step({"batch": 8}), _step({"batch": 1}),
                ],
                [1, 0, 1, 6, 7, 0, 7], [2, 4, 4, 4, 5, 2, 3], [_victim(3, "batch")],
                {"batch": 3, "agent": 2},
            ),
            _draw,
        ),
        Case(
            "twice",
            _serve((1, "slow", 4, 4, 5), (2, "u1", 4, 1, 0), (4, "u2", 4, 1, 0), slots=1),
            _outcome(
                [
                    _step({"slow": 4}), _step({"u1": 4}, "slow"), _step({"slow": 5}),
                    _step({"u2": 4}, "slow"), _step({"slow": 6}), _step({"slow": 1}),
                ],
                [60, 60, 59, 60, 58, 63], [1, 1, 2, 1, 2, 2],
                [_victim(2, "slow", 1), _victim(4, "slow", 2)], {"slow": 4, "u1": 1, "u2": 1},
            ),
            _draw,
        ),
        Case(
            "swapped",
            _serve(*SWAPPED, slots=1, host_blocks=4, swap=True),
            _outcome(
                [
                    _step({"slow": 6}), _step({"slow": 1}), _step({"urgent": 4}, "slow"),
                    _step({"slow": 1}), _step({"slow": 1}),
                ],
                [58, 63, 60, 63, 63], [2, 2, 1, 2, 3],
                [_victim(3, "slow", host_blocks=2, computed=7)], {"slow": 4, "urgent": 1},
            ),
            _draw,
        ),
        Case("no_room_on_host", _serve(*SWAPPED, slots=1, host_blocks=1, swap=True),
             COMPUTED_AGAIN, _draw),
        Case("not_worth_a_swap", _serve(*SWAPPED, slots=1, host_blocks=4), COMPUTED_AGAIN, _draw),
    ),
    mistakes=(
        Mistake("plan_kept", (("    plan.remove(victim)\n", ""),)),
        Mistake("end_of_line", (("victim, first=True", "victim"),)),
        Mistake("still_running", (("del self.running[victim.request_id]", "pass"),)),
        Mistake(
            "computed_kept",
            (
                (
                    "        self.books.release(victim)",
                    "        self.pool.free(victim.block_table)\n        victim.block_table = []",
                ),
            ),
        ),
        Mistake(
            "swapped_and_dropped",
            (("else:\n        self.books.release", "if True:\n        self.books.release"),),
        ),
        Mistake("never_swapped", (("self.books.can_swap_out(plan, victim)", "False"),)),
        Mistake("state_forgotten", (("    victim.state = State.PREEMPTED\n", ""),)),
        Mistake("output_dropped", (("+= 1\n", "+= 1\n    victim.output_token_ids.clear()\n"),)),
        Mistake("not_told", (("    plan.preempted.append(victim)\n", ""),)),
    ),
)  # fmt: skip

EXERCISES = (PREEMPT,)
