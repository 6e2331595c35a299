def span_of(request: Request, num_tokens: int) -> Span:
    done = request.num_computed_tokens
    last = done + num_tokens
    return Span(
        token_ids=request.token_ids[done:last],
        start=done,
        block_table=request.block_table,
        samples=last >= len(request.token_ids),
    )
