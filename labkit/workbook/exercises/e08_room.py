"""Notebook 08, room for an urgent request: `Scheduler._find_room`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake


def _steps(*steps):
    return {"steps": [*steps]}


def _step(tokens, *preempted):
    return {"tokens": tokens, "preempted": [*preempted]}


def _draw(expected, found):
    return drawings.schedule(expected["steps"], found["steps"])


def _only_steps(*asked, **options):
    def observe(part):
        from labkit.workbook.fakes_priorities import scheduled

        seen = scheduled(part.Scheduler, asked, **options)
        return {key: seen[key] for key in ("steps", "stopped") if key in seen}

    return observe


# Blocks have 4 tokens. In each case `asked` is (comes in step, name, prompt, max_tokens, priority).
PREFIX = [1] * 8  # two full blocks
TWO_THAT_SHARE = (1, "b1", [*PREFIX, 2], 8, 5), (2, "b2", [*PREFIX, 3], 8, 5)
ROOM = Exercise(
    id="08.2",
    module="labkit.engine.scheduler",
    symbol="Scheduler._find_room",
    core=True,
    minutes=35,
    difficulty=3,
    cases=(
        Case("room", _only_steps((1, "a", 4, 2, 0)), _steps(_step({"a": 4}), _step({"a": 1})),
             _draw),
        Case("just_enough", _only_steps((1, "a", 8, 1, 0), num_blocks=2), _steps(_step({"a": 8})),
             _draw),
        Case("one_short", _only_steps((1, "a", 4, 1, 0), (1, "b", 8, 1, 0), num_blocks=2),
             _steps(_step({"a": 4}), _step({"b": 8})), _draw),
        Case(
            "equals",
            _only_steps((1, "a", 4, 2, 0), (2, "b", 4, 2, 0), slots=1),
            _steps(_step({"a": 4}), _step({"a": 1}), _step({"b": 4}), _step({"b": 1})),
            _draw,
        ),
        Case(
            "urgent",
            _only_steps((1, "slow", 4, 3, 5), (2, "urgent", 4, 2, 0), slots=1),
            _steps(
                _step({"slow": 4}), _step({"urgent": 4}, "slow"), _step({"urgent": 1}),
                _step({"slow": 5}), _step({"slow": 1}),
            ),
            _draw,
        ),
        Case(
            "least_urgent",
            _only_steps(
                (1, "chat", 6, 3, 1), (1, "batch", 6, 3, 5), (2, "urgent", 5, 2, 0), num_blocks=4
            ),
            _steps(
                _step({"chat": 6, "batch": 6}), _step({"chat": 1, "urgent": 5}, "batch"),
                _step({"urgent": 1, "chat": 1}), _step({"batch": 7}), _step({"batch": 1}),
            ),
            _draw,
        ),
        Case(
            "least_urgent_first",
            _only_steps(
                (1, "batch", 4, 3, 5), (2, "chat", 4, 3, 1), (3, "urgent", 4, 1, 0), slots=2
            ),
            _steps(
                _step({"batch": 4}), _step({"batch": 1, "chat": 4}),
                _step({"chat": 1, "urgent": 4}, "batch"), _step({"chat": 1, "batch": 6}),
            ),
            _draw,
        ),
        Case(
            "last_of_equals",
            _only_steps(
                (1, "x", 4, 3, 5), (1, "y", 4, 3, 5), (2, "urgent", 4, 1, 0), slots=2
            ),
            _steps(
                _step({"x": 4, "y": 4}), _step({"x": 1, "urgent": 4}, "y"),
                _step({"x": 1, "y": 5}), _step({"y": 1}),
            ),
            _draw,
        ),
        Case(
            "not_enough",
            _only_steps(
                (1, "other", 9, 3, 0), (1, "batch", 2, 3, 5), (2, "long", 8, 2, 1), num_blocks=4
            ),
            _steps(
                _step({"other": 9, "batch": 2}), _step({"other": 1, "batch": 1}),
                _step({"other": 1, "batch": 1}), _step({"long": 8}), _step({"long": 1}),
            ),
            _draw,
        ),
        # b1 and b2 hold all 4 blocks, of which they share 2; 4 are needed
        Case(
            "both_share",
            _only_steps(*TWO_THAT_SHARE, (3, "urgent", [9] * 16, 1, 0), num_blocks=4,
                        sharing=True, most=3),
            _steps(
                _step({"b1": 9}), _step({"b1": 1, "b2": 1}), _step({"urgent": 16}, "b2", "b1")
            ),
            _draw,
        ),
        # the same two, 1 block is free, and `other` keeps its 2; 6 are needed
        Case(
            "shared_once",
            _only_steps((1, "other", [8] * 5, 8, 0), *TWO_THAT_SHARE, (3, "long", [9] * 24, 1, 1),
                        num_blocks=7, sharing=True, most=3),
            _steps(
                _step({"other": 5, "b1": 9}), _step({"other": 1, "b1": 1, "b2": 1}),
                _step({"other": 1, "b1": 1, "b2": 1}),
            ),
            _draw,
        ),
        # what batch shares with chat, who may not be preempted, is not freed
        Case(
            "shared_with_another",
            _only_steps((1, "chat", [*PREFIX, 2], 8, 0), (2, "batch", [*PREFIX, 3], 8, 5),
                        (3, "long", [9] * 12, 1, 1), num_blocks=5, sharing=True, most=3),
            _steps(
                _step({"chat": 9}), _step({"chat": 1, "batch": 1}), _step({"chat": 1, "batch": 1})
            ),
            _draw,
        ),
        # what it shares with its own victim is counted as there already
        Case(
            "shared_with_victim",
            _only_steps((1, "other", [8] * 2, 6, 0), (1, "batch", [*PREFIX, 2], 8, 5),
                        (2, "long", [*PREFIX, *[9] * 8], 1, 1), num_blocks=4, sharing=True,
                        most=2),
            _steps(_step({"other": 2, "batch": 9}), _step({"other": 1, "batch": 1})),
            _draw,
        ),
    ),
    mistakes=(
        Mistake("equals_preempt", (
            ("self.policy.may_preempt(request, r)", "request.priority <= r.priority"),
        )),
        Mistake("not_enough", ((" or freed < missing", ""),)),
        Mistake("only_blocks_preempt", ((
            "if not victims or", "if len(self.running) >= self.max_num_seqs or not victims or"
        ),)),
        Mistake("slots_ignored", ((" and len(self.running) < self.max_num_seqs", ""),)),
        Mistake("shared_counted_twice", ((
            "sum(self.pool.ref_counts[block] == n for block, n in holders.items())",
            "sum(len(victim.block_table) for victim in victims)",
        ),)),
        Mistake("only_unshared", (("ref_counts[block] == n", "ref_counts[block] == 1"),)),
        Mistake("shared_with_others", ((
            "sum(self.pool.ref_counts[block] == n for block, n in holders.items())", "len(holders)"
        ),)),
        Mistake("all_at_once", ((
            "self._preempt(plan, self.policy.victim(victims))",
            "for victim in victims:\n            self._preempt(plan, victim)",
        ),)),
        Mistake("first_admitted", (("self.policy.victim(victims)", "victims[0]"),)),
    ),
)  # fmt: skip

EXERCISES = (ROOM,)
