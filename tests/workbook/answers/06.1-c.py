def plan(self, now: float) -> StepPlan:
    step = StepPlan(self._budget(), now)
    self._end_overdue(step)
    missing = lambda r: r.num_tokens - r.num_computed_tokens  # noqa: E731
    order = tuple(self.policy.in_order(list(self.running.values())))
    talking = [r for r in order if missing(r) == 1]
    reading = [r for r in order if r not in talking]
    urgent_first = step.budget <= len(talking)
    for group, lets_in in ((talking, urgent_first), (reading, True)):
        for request in group:
            if lets_in:
                self._admit(step, before=request)
            self._continue(step, request)
    self._admit(step)
    return step
