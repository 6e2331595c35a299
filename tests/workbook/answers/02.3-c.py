def step(self) -> list[StepEvent]:
    if not self.batch:
        taken = self.next_batch()
        for request in taken:
            request.state = State.RUNNING
        self.batch = taken
    asked = list(filter(lambda r: r.state is State.RUNNING, self.batch))
    if not asked:
        self.leave([])
        return []
    results = list(sample(self.next_logits(asked), asked))
    now, events = self.clock(), []
    while results:
        events.append(advance(asked[len(events)], results.pop(0), now))
    self.leave([r for r in asked if r.finish_reason is not None])
    return events
