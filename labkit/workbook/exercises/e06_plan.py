"""Notebook 06, who computes what in the next step: `Scheduler.plan`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake

STEPS = "tokens of each step"


def _draw(expected, found):
    return drawings.schedule(expected[STEPS], found.get(STEPS))


def _run(num_steps, *arrivals, policy="fcfs", **limits):
    """So many steps of a scheduler; an arrival is (step, name, prompt tokens, fields)."""

    def observe(part):
        from labkit.engine.policies import make_policy
        from labkit.workbook.fakes_continuous import Drive

        drive = Drive(part, policy=make_policy(policy), **limits)
        return drive.run([(a[0], a[1], a[2], 8, dict(*a[3:])) for a in arrivals], num_steps)

    return observe


def _steps(*steps, ended=()):
    return {STEPS: list(steps), "ended": dict(ended)}


def _by_the_pace(part):
    """One plan of a scheduler that must keep a target for the gap between tokens."""
    from labkit.workbook.fakes_continuous import Drive, in_words

    drive = Drive(part, max_num_batched_tokens=64, itl_target=20.0)
    drive.add("a", 3)
    drive.step(0.0)
    drive.scheduler.pace.fixed, drive.scheduler.pace.per_token = 0.0, 1.0
    drive.add("b", 40)
    plan = drive.scheduler.plan(5.0)
    return {STEPS: [in_words(plan)], "time of the plan": plan.time, "ended": {}}


def _after_a_preemption(part):
    """`a` comes back with 5 output tokens to compute again, as `b`, less urgent, generates."""
    back = {"output_token_ids": [9] * 5, "num_preemptions": 1, "priority": 0}
    arrivals = (0, "b", 2, {"priority": 5}), (1, "a", 2, back)
    return _run(4, *arrivals, policy="priority", max_num_batched_tokens=4)(part)


def _case(name, observe, expected):
    return Case(name, observe, expected, draw=_draw)


URGENT, PATIENT = {"priority": 0}, {"priority": 5}

PLAN = Exercise(
    id="06.1",
    module="labkit.engine.scheduler",
    symbol="Scheduler.plan",
    core=True,
    minutes=40,
    difficulty=3,
    cases=(
        _case(
            "one_request",
            _run(3, (0, "a", 5), max_num_batched_tokens=8),
            _steps({"a": 5}, {"a": 1}, {"a": 1}),
        ),
        _case("nobody", _run(1), _steps({})),
        _case(
            "long_prompt",
            _run(4, (0, "a", 10), max_num_batched_tokens=4),
            _steps({"a": 4}, {"a": 4}, {"a": 2}, {"a": 1}),
        ),
        _case(
            "what_is_left",
            _run(2, (0, "a", 3), (0, "b", 3), (0, "c", 3), max_num_batched_tokens=8),
            _steps({"a": 3, "b": 3, "c": 2}, {"a": 1, "b": 1, "c": 1}),
        ),
        _case(
            "generating_first",
            _run(4, (0, "a", 2), (1, "b", 8), max_num_batched_tokens=4),
            _steps({"a": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 3}, {"a": 1, "b": 2}),
        ),
        _case(
            "under_way_before_new",
            _run(3, (0, "a", 6), (1, "b", 4), max_num_batched_tokens=4),
            _steps({"a": 4}, {"a": 2, "b": 2}, {"a": 1, "b": 2}),
        ),
        _case(
            "order_of_the_policy",
            _run(
                3,
                (0, "a", 6, PATIENT),
                (1, "b", 7, URGENT),
                policy="priority",
                max_num_batched_tokens=4,
            ),
            _steps({"a": 4}, {"b": 4}, {"a": 1, "b": 3}),
        ),
        _case(
            "urgent_keeps_behind",
            _run(
                3,
                (0, "a", 3, PATIENT),
                (1, "b", 6, URGENT),
                policy="priority",
                max_num_batched_tokens=4,
            ),
            _steps({"a": 3}, {"a": 1, "b": 3}, {"a": 1, "b": 3}),
        ),
        _case(
            "crowded",
            _run(
                3,
                (0, "a", 1, PATIENT),
                (0, "b", 1, PATIENT),
                (1, "c", 2, URGENT),
                policy="priority",
                max_num_batched_tokens=2,
                max_num_seqs=2,
            ),
            _steps(
                {"a": 1, "b": 1},
                {"tokens": {"c": 2}, "preempted": ["b"]},
                {"a": 1, "c": 1},
            ),
        ),
        _case(
            "not_crowded",
            _run(
                3,
                (0, "a", 1, PATIENT),
                (0, "b", 9, PATIENT),
                (1, "c", 5, URGENT),
                policy="priority",
                max_num_batched_tokens=2,
            ),
            _steps({"a": 1, "b": 1}, {"a": 1, "c": 1}, {"a": 1, "c": 1}),
        ),
        # only `b` may be preempted by `c`, and there are slots for all
        _case(
            "crowded_in_between",
            _run(
                3,
                (0, "a", 1, URGENT),
                (0, "b", 1, {"priority": 9}),
                (1, "c", 2, PATIENT),
                policy="priority",
                max_num_batched_tokens=2,
            ),
            _steps({"a": 1, "b": 1}, {"a": 1, "c": 1}, {"a": 1, "c": 1}),
        ),
        _case(
            "urgent_in_between",
            _run(
                4,
                (0, "a", 10, {"priority": 9}),
                (1, "b", 6, URGENT),
                (2, "c", 3, PATIENT),
                policy="priority",
                max_num_batched_tokens=4,
            ),
            _steps({"a": 4}, {"b": 4}, {"b": 2, "c": 2}, {"b": 1, "c": 1, "a": 2}),
        ),
        _case(
            "after_a_preemption",
            _after_a_preemption,
            _steps({"b": 2}, {"b": 1, "a": 3}, {"b": 1, "a": 3}, {"b": 1, "a": 1}),
        ),
        _case(
            "deadline",
            _run(3, (0, "a", 2), (0, "b", 9, {"deadline": 0.5}), max_num_batched_tokens=4),
            _steps({"a": 2, "b": 2}, {"a": 1}, {"a": 1}, ended={"b": "deadline"}),
        ),
        _case(
            "deadline_makes_room",
            _run(
                2,
                (0, "a", 1, PATIENT | {"deadline": 0.5}),
                (0, "b", 1, PATIENT),
                (1, "c", 2, URGENT),
                policy="priority",
                max_num_batched_tokens=2,
            ),
            _steps({"a": 1, "b": 1}, {"b": 1, "c": 1}, ended={"a": "deadline"}),
        ),
        _case(
            "target",
            _by_the_pace,
            {STEPS: [{"a": 1, "b": 19}], "time of the plan": 5.0, "ended": {}},
        ),
    ),
    mistakes=(
        Mistake(
            "prompts_first",
            (
                ("for request in generating:", "for request in under_way:"),
                (
                    "    for request in under_way:\n        self._admit(plan, before=request)",
                    "    for request in generating:",
                ),
            ),
        ),
        Mistake(
            "new_ones_first",
            (("    crowded = len(", "    self._admit(plan)\n    crowded = len("),),
        ),
        Mistake("no_budget", (("StepPlan(self._budget(), now)", "StepPlan(10**9, now)"),)),
        Mistake("target_ignored", (("self._budget()", "self.max_num_batched_tokens"),)),
        Mistake(
            "one_phase_a_step",
            (
                (
                    "    for request in generating:",
                    "    prompts = under_way or self.policy.peek()\n"
                    "    for request in [] if prompts else generating:",
                ),
            ),
        ),
        Mistake(
            "batch_closed",
            (
                (
                    "        self._continue(plan, request)\n    self._admit(plan)",
                    "        self._continue(plan, request)\n"
                    "    if not self.running:\n        self._admit(plan)",
                ),
            ),
        ),
        Mistake(
            "order_forgotten",
            (("self.policy.in_order(self.running.values())", "self.running.values()"),),
        ),
        Mistake(
            "generating_once_prompted",
            (("left == 1", "request.num_computed_tokens >= request.num_prompt_tokens"),),
        ),
        Mistake("always_crowded", (("        if crowded:", "        if True:"),)),
        Mistake("never_crowded", (("        if crowded:", "        if False:"),)),
        Mistake("overdue_forgotten", (("    self._end_overdue(plan)\n", ""),)),
    ),
)

EXERCISES = (PLAN,)
