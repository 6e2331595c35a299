def step(self) -> list[StepEvent]:
    if not (self.batch or self.line):
        return []
    if not self.batch:
        self.batch = self.next_batch()
        for request in self.batch:
            request.state = State.RUNNING
    asked = [r for r in self.batch if r.state is State.RUNNING]
    results = sample(self.next_logits(asked), asked)
    when = self.clock()
    told = {r.request_id: advance(r, result, when) for r, result in zip(asked, results)}
    self.leave([r for r in asked if told[r.request_id].finish_reason is not None])
    return list(told.values())
