def step_time(
    num_flops: float, num_bytes: float, peak_flops: float, bandwidth: float
) -> tuple[float, str]:
    times = {}
    times["memory"] = num_bytes / bandwidth  # first, so that it wins a tie
    times["compute"] = num_flops / peak_flops
    slowest = None
    for name in times:
        if slowest is None or times[name] > times[slowest]:
            slowest = name
    return (times[slowest], slowest)
