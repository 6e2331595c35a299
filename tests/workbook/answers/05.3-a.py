def query_rows(token, num_tokens, kv_head, KV_HEADS: tl.constexpr, GROUP: tl.constexpr, ROWS: tl.constexpr):  # noqa: E501
    row = tl.arange(0, ROWS)
    which = row // GROUP
    head = kv_head * GROUP + row % GROUP
    whole = ROWS // GROUP
    real = which < tl.minimum(num_tokens, whole)
    tokens = which + token
    return tokens, tokens * (KV_HEADS * GROUP) + head, real
