def plan(self, now):
    step = StepPlan(self._budget(), now)
    self._end_overdue(step)
    running = list(self.policy.in_order(self.running.values()))

    def is_prompt(request):
        return request.num_computed_tokens + 1 < request.num_tokens

    running.sort(key=is_prompt)  # stable: the policy's order within each half
    num_prompts = sum(map(is_prompt, running))
    crowded = len(running) - num_prompts >= step.budget
    which = [(request, is_prompt(request)) for request in running]
    while which:
        request, prompt = which.pop(0)
        if prompt or crowded:
            self._admit(step, before=request)
        self._continue(step, request)
    self._admit(step)
    return step
