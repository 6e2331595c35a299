def step(self) -> list[TokenEvent]:
    events = []
    if len(self.line) > 0:
        request = self.line[0]
        context = []
        context.extend(request.prompt_token_ids)
        context.extend(request.output_token_ids)
        new_token = next_token(self.model, context)
        request.output_token_ids += [new_token]

        reason = None
        if len(request.output_token_ids) == request.max_tokens:
            reason = "length"
        if not request.ignore_eos:
            if new_token in self.eos_token_ids:
                reason = "stop"  # wins over "length"
        request.finish_reason = reason

        if reason is not None:
            del self.line[0]
        event = TokenEvent(
            request_id=request.request_id,
            token_id=new_token,
            finish_reason=reason,
            time=self.clock(),
        )
        events.append(event)
    return events
