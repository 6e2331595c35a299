def add(self, asked: Add) -> Accepted | Refused:
    answer = Accepted(asked.request_id)
    if self.would_wait(asked.params.n) <= self.max_queued_requests:
        try:
            for request in self.engine.add(
                asked.prompt_token_ids,
                asked.params,
                request_id=asked.request_id,
                arrival=asked.arrival,
                cache_salt=asked.cache_salt,
                priority=asked.priority,
                tenant=asked.tenant,
                deadline=asked.deadline,
            ):
                self.waiting[request.request_id] = request
                self.open[request.request_id] = request
        except ValueError as error:
            answer = Refused(asked.request_id, f"{error}")
    else:
        told = f"more than {self.max_queued_requests} would wait"
        answer = Refused(asked.request_id, told, busy=True)
    return answer
