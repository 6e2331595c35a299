def wanted_replicas(load: Load, limits: Limits) -> int:
    wanted = math.ceil(load.num_requests / limits.requests_each)
    at_least = limits.min_replicas
    if load.kv_usage > limits.kv_high:
        at_least = max(at_least, load.num_replicas + 1)
    if limits.kv_low <= load.kv_usage <= limits.kv_high:
        at_least = max(at_least, load.num_replicas)
    return min(limits.max_replicas, max(wanted, at_least))
