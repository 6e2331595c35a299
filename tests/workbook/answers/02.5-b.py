def best_batch(
    runs: Sequence[BatchRun], ttft_limit: float = inf, tpot_limit: float = inf
) -> int | None:
    goodput = {}
    for run in runs:
        good = 0
        for request in run.latencies:
            late = request.ttft > ttft_limit
            slow = request.tpot is not None and request.tpot > tpot_limit
            good += not (late or slow)
        goodput[run.batch_size] = good / run.seconds
    most = max(goodput.values(), default=0)
    if most == 0:
        return None
    return min(size for size, value in goodput.items() if value == most)
