def step(self) -> list[TokenEvent]:
    if not self.line:
        return []
    request = self.line[0]
    token = next_token(self.model, request.token_ids)
    now = self.clock()
    request.output_token_ids.append(token)
    if token in self.eos_token_ids and not request.ignore_eos:
        request.finish_reason = "stop"
    elif len(request.output_token_ids) >= request.max_tokens:
        request.finish_reason = "length"
    if request.finish_reason:
        self.line.popleft()
    return [TokenEvent(request.request_id, token, request.finish_reason, now)]
