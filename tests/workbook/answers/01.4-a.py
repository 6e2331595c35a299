def latency(arrival: float, token_times: Sequence[float]) -> Latency:
    if not token_times:
        raise ValueError("no token times: a request without tokens has no latency")
    first, last, later = token_times[0], token_times[-1], len(token_times) - 1
    return Latency(
        ttft=first - arrival,
        itl=[b - a for a, b in pairwise(token_times)],
        tpot=(last - first) / later if later else None,
        e2e=last - arrival,
    )
