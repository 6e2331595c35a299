def on_step(self, step: Step) -> None:
    now = self.clock()

    def still_here(items, name=lambda item: item.request_id):
        for item in items:
            choice = self.choices.get(name(item))
            if choice is not None:
                yield choice, item

    for choice, start in still_here(step.started):
        choice.started, choice.num_cached_tokens = start.time, start.num_cached_tokens
        self.observer.started(choice)
    for choice, _ in still_here(step.preempted, str):
        choice.num_preemptions += 1
        self.observer.preempted(choice)
    tickets = {}
    for choice, token in still_here(step.tokens):
        tickets[id(choice.ticket)] = choice.ticket
        choice.take(token)
        if token.token_id is not None:
            self.observer.token(choice, now)
            choice.first_token = now if choice.first_token is None else choice.first_token
            choice.last_token = now
        if choice.output.finish_reason is not None:
            self.close_choice(choice)
    for ticket in tickets.values():
        self.wake(ticket)
    self.observer.stepped(step)
