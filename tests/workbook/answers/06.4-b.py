def _start(self, plan, request, shared, num_cached):
    self.books.start(plan, request, shared, num_cached)
    tokens = sorted([plan.budget, request.num_tokens - request.num_computed_tokens])[0]
    needed = self.books.needed(request, tokens)
    self.books.take(plan, request, tokens, needed)
    self.running.update({request.request_id: request})
    self.policy.admit(request, plan.time)
    request.state = State.RUNNING
    if request.num_preemptions > 0:
        return
    self.policy.charge(request, len(request.prompt_token_ids), 0)
    request.num_cached_tokens = num_cached
