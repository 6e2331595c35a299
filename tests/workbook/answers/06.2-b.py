def commit(self, plan, sampled, now):
    self.books.copied(plan)
    if plan.chunks:
        seconds = now - plan.time
        self.pace.observe(sum(c.num_tokens for c in plan.chunks.values()), seconds)
    told = last_events(plan.failed, now)
    next_row = 0
    for chunk in plan.chunks.values():
        row = next_row if chunk.samples else None
        next_row += chunk.samples
        request = chunk.request
        if request.state == State.FINISHED:
            continue
        self.books.note_computed(request, chunk)
        if chunk.start < request.num_prompt_tokens <= chunk.end:
            self._start_copies(request)
        if row is not None:
            told += [advance(request, sampled[row], now)]
            self.policy.charge(request, num_prompt_tokens=0, num_output_tokens=1)
        if request.state == State.FINISHED:
            self._forget(request)
    return told
