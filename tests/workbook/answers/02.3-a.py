def step(self) -> list[StepEvent]:
    if len(self.batch) == 0:
        self.batch = list(self.next_batch())
        for r in self.batch:
            r.state = State.RUNNING
    todo = [r for r in self.batch if r.finish_reason is None]
    if not todo:
        return []
    logits = self.next_logits(todo)
    sampled = sample(logits, todo)
    now = self.clock()
    events, ended = [], []
    for i in range(len(todo)):
        events.append(advance(todo[i], sampled[i], now))
        if todo[i].state == State.FINISHED:
            ended.append(todo[i])
    if ended:
        self.leave(ended)
    return events
