def _start(self, plan: StepPlan, request: Request, shared: list[int], num_cached: int) -> None:
    self.policy.admit(request, plan.time)
    if not request.num_preemptions:
        request.num_cached_tokens = num_cached
        self.policy.charge(request, request.num_prompt_tokens, 0)
    self.running[request.request_id] = request
    request.state = State.RUNNING
    self.books.start(plan, request, shared, num_cached)
    todo = request.num_tokens - request.num_computed_tokens
    if todo > plan.budget:
        todo = plan.budget
    self.books.take(plan, request, todo, self.books.needed(request, todo))
