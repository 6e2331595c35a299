def add(self, asked: Add) -> Accepted | Refused:
    cap, name = self.max_queued_requests, asked.request_id
    if self.would_wait(asked.params.n) > cap:
        return Refused(name, f"{cap} may wait, and the line is full", True)
    fields = ("request_id", "arrival", "cache_salt", "priority", "tenant", "deadline")
    try:
        made = self.engine.add(
            asked.prompt_token_ids, asked.params, **{f: getattr(asked, f) for f in fields}
        )
    except ValueError as fault:
        return Refused(name, str(fault), False)
    by_id = {request.request_id: request for request in made}
    self.open.update(by_id)
    self.waiting.update(by_id)
    return Accepted(name)
