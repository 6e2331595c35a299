def plan(self, now: float) -> StepPlan:
    plan = StepPlan(self._budget(), now)
    self._end_overdue(plan)
    order = self.policy.in_order(self.running.values())
    lacking = {r.request_id: r.num_tokens - r.num_computed_tokens for r in order}
    decoding = [r for r in order if lacking[r.request_id] <= 1]
    prompts = [r for r in order if lacking[r.request_id] > 1]
    no_room = plan.budget <= len(decoding)
    for request in decoding + prompts:
        if no_room or request in prompts:
            self._admit(plan, request)
        self._continue(plan, request)
    self._admit(plan, None)
    return plan
