def forward_cost(config, num_new: int, num_cached: int = 0, bytes_per_number: int = 4) -> Cost:
    hidden, layers = config.hidden_size, config.num_hidden_layers
    try:
        head_dim = config.head_dim or hidden // config.num_attention_heads
    except AttributeError:
        head_dim = hidden // config.num_attention_heads
    q = hidden * config.num_attention_heads * head_dim
    k = hidden * config.num_key_value_heads * head_dim
    matrices = [q, k, k, q] + [hidden * config.intermediate_size] * 3
    num_weights = float(layers * sum(matrices) + hidden * config.vocab_size)
    flops = 0.0
    for new in range(1, num_new + 1):
        seen = num_cached + new
        flops += 2 * num_weights
        flops += layers * 2 * 2 * config.num_attention_heads * head_dim * seen
    tokens = num_cached + num_new
    kv = 2 * layers * config.num_key_value_heads * head_dim * tokens
    return Cost(num_flops=flops, num_bytes=bytes_per_number * num_weights + bytes_per_number * kv)
