def step_time(
    num_flops: float, num_bytes: float, peak_flops: float, bandwidth: float
) -> tuple[float, str]:
    compute, memory = num_flops / peak_flops, num_bytes / bandwidth
    return max(compute, memory), "compute" if compute > memory else "memory"
