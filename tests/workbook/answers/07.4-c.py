def add(self, asked: Add) -> Accepted | Refused:
    cap, name = self.max_queued_requests, asked.request_id
    if self.would_wait(asked.params.n) > cap:
        return Refused(name, f"at most {cap} requests may wait", busy=True)
    fields = ("request_id", "arrival", "cache_salt", "priority", "tenant", "deadline")
    options = {field: getattr(asked, field) for field in fields}
    try:
        made = self.engine.add(asked.prompt_token_ids, asked.params, **options)
    except ValueError as refusal:
        return Refused(name, str(refusal))
    by_id = {request.request_id: request for request in made}
    self.open.update(by_id)
    self.waiting.update(by_id)
    return Accepted(name)
