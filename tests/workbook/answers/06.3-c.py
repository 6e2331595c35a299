def build(cls, spans: Sequence[Span], block_size: int, device="cpu") -> "FlatBatch":
    refuse_short_tables(spans, block_size)
    tokens, positions, slots, starts, rows, news, contexts = [], [], [], [0], [], [], []
    for span in spans:
        tokens += span.token_ids
        positions += range(span.start, span.context_len)
        slots += slots_of(span.block_table, span.start, span.context_len, block_size)
        starts.append(len(tokens))
        rows += [len(tokens) - 1] if span.samples else []
        news.append(len(span.token_ids))
        contexts.append(span.context_len)
    width = (max(contexts) + block_size - 1) // block_size
    tables = [(list(s.block_table) + [0] * width)[:width] for s in spans]
    tensors = (on_device(x, device) for x in (tokens, positions, slots, tables, starts, rows))
    return cls(*tensors, query_lens=news, context_lens=contexts, block_size=block_size)
