def forward_cost(config, num_new: int, num_cached: int = 0, bytes_per_number: int = 4) -> Cost:
    heads, hidden = config.num_attention_heads, config.hidden_size
    dim = getattr(config, "head_dim", None)
    dim = hidden // heads if dim is None else dim
    weights = flops = numbers = 0
    for _ in range(config.num_hidden_layers):
        for width in (heads, config.num_key_value_heads, config.num_key_value_heads, heads):
            weights += hidden * width * dim
        weights += sum(hidden * config.intermediate_size for _ in ("gate", "up", "down"))
        flops += sum(4 * heads * dim * (num_cached + i) for i in range(1, num_new + 1))
        numbers += 2 * config.num_key_value_heads * dim * (num_new + num_cached)
    weights += hidden * config.vocab_size
    flops += 2 * weights * num_new
    return Cost(flops, (weights + numbers) * bytes_per_number)
