def sequences_that_fit(
    config, num_tokens: int, memory: int, weight_bytes: int, kv_bits: int = 16
) -> tuple[int, int]:
    width = config.hidden_size // config.num_attention_heads
    width = getattr(config, "head_dim", width) or width
    bits = 0
    for _ in range(config.num_hidden_layers):
        for _ in ("key", "value"):
            bits += config.num_key_value_heads * width * kv_bits
    one = num_tokens * bits // 8
    count, left = 0, memory - weight_bytes
    if left > 0:
        count, _ = divmod(left, one)
    return bits // 8, count
