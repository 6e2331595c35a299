def commit(self, plan: StepPlan, sampled: Sequence, now: float) -> list[StepEvent]:
    self.books.copied(plan)
    if len(plan.chunks) > 0:
        self.pace.observe(plan.num_tokens, now - plan.time)
    row, told = 0, list(last_events(plan.failed, now))
    for chunk in list(plan.chunks.values()):
        request, result = chunk.request, None
        if chunk.samples:
            result, row = sampled[row], row + 1
        if request.state is State.FINISHED:
            continue
        self.books.note_computed(request, chunk)
        if chunk.end >= request.num_prompt_tokens:
            self._start_copies(request)
        if result is not None:
            told += [advance(request, result, now)]
            self.policy.charge(request, 0, 1)
            if request.state is State.FINISHED:
                self._forget(request)
    return told
