def query_rows(token, num_tokens, kv_head, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr):  # noqa: E501
    rows = tl.arange(0, ROWS)
    offset = rows - rows % GROUP
    tokens = token + offset // GROUP
    lines = (token * KV_HEADS + kv_head) * GROUP + offset * KV_HEADS + rows % GROUP
    real = (offset + GROUP <= ROWS) & (offset < num_tokens * GROUP)
    return tokens, lines, real
