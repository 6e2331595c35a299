def forward_cost(config, num_new: int, num_cached: int = 0, bytes_per_number: int = 4) -> Cost:
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    width = getattr(config, "head_dim", None)
    if width is None:
        width = config.hidden_size // heads
    in_layer = config.hidden_size * width * (2 * heads + 2 * kv_heads)
    in_layer += 3 * config.hidden_size * config.intermediate_size
    weights = config.num_hidden_layers * in_layer + config.vocab_size * config.hidden_size
    pairs = sum(num_cached + i + 1 for i in range(num_new))
    flops = 2 * weights * num_new + 4 * config.num_hidden_layers * heads * width * pairs
    kept = 2 * config.num_hidden_layers * kv_heads * width * (num_new + num_cached)
    return Cost(flops, (weights + kept) * bytes_per_number)
