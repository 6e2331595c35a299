def sequences_that_fit(
    config, num_tokens: int, memory: int, weight_bytes: int, kv_bits: int = 16
) -> tuple[int, int]:
    dim = getattr(config, "head_dim", None)
    if dim is None:
        dim = config.hidden_size // config.num_attention_heads
    bits = kv_bits * dim * config.num_key_value_heads * config.num_hidden_layers * 2
    one = bits // 8
    room, fitting = memory - weight_bytes, 0
    if room > 0:
        fitting, _ = divmod(room, one * num_tokens)
    return one, fitting
