def wanted_replicas(load: Load, limits: Limits) -> int:
    wanted = limits.min_replicas
    while wanted < limits.max_replicas:
        enough = wanted * limits.requests_each >= load.num_requests
        if load.kv_usage > limits.kv_high:
            enough = enough and wanted > load.num_replicas
        elif load.kv_usage >= limits.kv_low:
            enough = enough and wanted >= load.num_replicas
        if enough:
            break
        wanted += 1
    return wanted
