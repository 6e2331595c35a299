def span_of(request: Request, num_tokens: int) -> Span:
    position = request.num_computed_tokens
    chosen = []
    for _ in range(num_tokens):
        if position < request.num_prompt_tokens:
            chosen.append(request.prompt_token_ids[position])
        else:
            chosen.append(request.output_token_ids[position - request.num_prompt_tokens])
        position += 1
    nothing_left = request.num_tokens - position == 0
    return Span(chosen, position - num_tokens, tuple(request.block_table), nothing_left)
