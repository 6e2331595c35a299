def build(cls, spans: Sequence[Span], block_size: int, device="cpu") -> "FlatBatch":
    refuse_short_tables(spans, block_size)
    token_ids, positions, slots, query_start, rows = [], [], [], [0], []
    for span in spans:
        end = span.start + len(span.token_ids)
        token_ids += list(span.token_ids)
        positions += list(range(span.start, end))
        slots += slots_of(span.block_table, span.start, end, block_size)
        query_start.append(len(token_ids))
        if span.samples:
            rows.append(len(token_ids) - 1)
    longest = max(span.context_len for span in spans)
    width = (longest + block_size - 1) // block_size
    tables = [(list(span.block_table) + [0] * width)[:width] for span in spans]
    return cls(
        on_device(token_ids, device),
        on_device(positions, device),
        on_device(slots, device),
        on_device(tables, device),
        on_device(query_start, device),
        on_device(rows, device),
        [len(span.token_ids) for span in spans],
        [span.context_len for span in spans],
        block_size,
    )
