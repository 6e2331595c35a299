def build(cls, spans, block_size, device="cpu"):
    refuse_short_tables(spans, block_size)
    lens = [len(span.token_ids) for span in spans]
    contexts = [span.context_len for span in spans]
    query_start = [sum(lens[:r]) for r in range(len(spans) + 1)]
    width = max((context - 1) // block_size + 1 for context in contexts)
    tables = torch.zeros(len(spans), width, dtype=torch.int64)
    for row, span in enumerate(spans):
        own = torch.tensor(list(span.block_table), dtype=torch.int64)[:width]
        tables[row, : len(own)] = own
    positions = [s.start + i for s, n in zip(spans, lens) for i in range(n)]
    slots = [
        s.block_table[p // block_size] * block_size + p % block_size
        for s, n in zip(spans, lens)
        for p in range(s.start, s.start + n)
    ]
    return cls(
        token_ids=on_device([token for s in spans for token in s.token_ids], device),
        positions=on_device(positions, device),
        slot_mapping=on_device(slots, device),
        block_tables=tables.to(device),
        query_start=on_device(query_start, device),
        logits_rows=on_device(
            [query_start[r + 1] - 1 for r, s in enumerate(spans) if s.samples], device
        ),
        query_lens=lens,
        context_lens=contexts,
        block_size=block_size,
    )
