def sequences_that_fit(
    config, num_tokens: int, memory: int, weight_bytes: int, kv_bits: int = 16
) -> tuple[int, int]:
    head_dim = getattr(config, "head_dim", None)
    if not head_dim:
        head_dim = config.hidden_size // config.num_attention_heads
    key = config.num_key_value_heads * head_dim * kv_bits
    per_token = config.num_hidden_layers * (key + key) // 8
    if weight_bytes >= memory:
        return per_token, 0
    return per_token, int((memory - weight_bytes) // (num_tokens * per_token))
