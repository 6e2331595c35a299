def on_step(self, step: Step) -> None:
    now = self.clock()
    known = self.choices
    for begun in step.started:
        if begun.request_id in known:
            choice = known[begun.request_id]
            choice.started = begun.time
            choice.num_cached_tokens = begun.num_cached_tokens
            self.observer.started(choice)
    for name in step.preempted:
        if name in known:
            known[name].num_preemptions += 1
            self.observer.preempted(known[name])
    to_wake = []
    for token in step.tokens:
        if token.request_id not in known:
            continue
        choice = known[token.request_id]
        choice.take(token)
        if token.token_id is not None:
            self.observer.token(choice, now)
            choice.last_token = now
            if choice.first_token is None:
                choice.first_token = now
        if choice.ticket not in to_wake:
            to_wake.append(choice.ticket)
        if not choice.is_open:
            self.close_choice(choice)
    for ticket in to_wake:
        self.wake(ticket)
    self.observer.stepped(step)
