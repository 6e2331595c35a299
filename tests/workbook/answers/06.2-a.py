def commit(self, plan: StepPlan, sampled: Sequence, now: float) -> list[StepEvent]:
    chunks = list(plan.chunks.values())
    if len(chunks) > 0:
        self.pace.observe(plan.num_tokens, now - plan.time)
    self.books.copied(plan)
    sampling = [chunk.request.request_id for chunk in chunks if chunk.samples]
    result_of = dict(zip(sampling, sampled))
    events = list(last_events(plan.failed, now))
    for chunk in chunks:
        request = chunk.request
        if request.finish_reason is None:
            self.books.note_computed(request, chunk)
            if request.num_computed_tokens >= request.num_prompt_tokens:
                self._start_copies(request)
            if request.request_id in result_of:
                events.append(advance(request, result_of[request.request_id], now))
                self.policy.charge(request, 0, 1)
                if request.finish_reason is not None:
                    self._forget(request)
    return events
