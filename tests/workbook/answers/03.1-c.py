def span_of(request: Request, num_tokens: int) -> Span:
    first = request.num_computed_tokens
    left = request.num_tokens - first - num_tokens
    tokens = (request.prompt_token_ids + request.output_token_ids)[first:][:num_tokens]
    return Span(tokens, first, list(request.block_table), samples=not left)
