def best_batch(
    runs: Sequence[BatchRun], ttft_limit: float = inf, tpot_limit: float = inf
) -> int | None:
    def meets(one):
        return one.ttft <= ttft_limit and (one.tpot or 0.0) <= tpot_limit

    rates = {run.batch_size: sum(map(meets, run.latencies)) / run.seconds for run in runs}
    best = max(rates.values(), default=0.0)
    if best == 0.0:
        return None
    return min(size for size in rates if rates[size] == best)
