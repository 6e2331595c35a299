def wanted_replicas(load: Load, limits: Limits) -> int:
    for_requests = -int(-load.num_requests // limits.requests_each)
    now = load.num_replicas
    for_memory = now + 1 if load.kv_usage > limits.kv_high else now
    if load.kv_usage < limits.kv_low:
        for_memory = 0
    wanted = sorted([for_requests, for_memory])[-1]
    return sorted([limits.min_replicas, wanted, limits.max_replicas])[1]
