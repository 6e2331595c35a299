def _start(self, plan: StepPlan, request: Request, shared: list[int], num_cached: int) -> None:
    if not request.num_preemptions:
        request.num_cached_tokens = num_cached
        self.policy.charge(request, request.num_prompt_tokens, 0)
    self.policy.admit(request, plan.time)
    self.running[request.request_id] = request
    request.state = State.RUNNING
    self.books.start(plan, request, shared, num_cached)
    left = request.num_tokens - request.num_computed_tokens
    count = left if left < plan.budget else plan.budget
    self.books.take(plan, request, count, self.books.needed(request, count))
