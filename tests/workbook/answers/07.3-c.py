def on_step(self, step: Step) -> None:
    now, woken = self.clock(), []
    known = lambda name: self.choices.get(name)  # noqa: E731
    for start in step.started:
        choice = known(start.request_id)
        if choice is not None:
            choice.started = start.time
            choice.num_cached_tokens = start.num_cached_tokens
            self.observer.started(choice)
    for choice in filter(None, map(known, step.preempted)):
        choice.num_preemptions = choice.num_preemptions + 1
        self.observer.preempted(choice)
    for token in step.tokens:
        choice = known(token.request_id)
        if choice is None:
            continue
        if choice.ticket not in woken:
            woken.append(choice.ticket)
        choice.take(token)
        if token.token_id is not None:
            self.observer.token(choice, now)
            if choice.first_token is None:
                choice.first_token = now
            choice.last_token = now
        if not choice.is_open:
            self.close_choice(choice)
    for ticket in woken:
        self.wake(ticket)
    self.observer.stepped(step)
