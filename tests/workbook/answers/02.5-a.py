def best_batch(
    runs: Sequence[BatchRun], ttft_limit: float = inf, tpot_limit: float = inf
) -> int | None:
    def met(one):
        return one.ttft <= ttft_limit and (one.tpot or 0.0) <= tpot_limit

    rated = []
    for run in runs:
        count = sum(map(met, run.latencies))
        if count:
            rated.append((-count / run.seconds, run.batch_size))
    return min(rated)[1] if rated else None
