def latency(arrival: float, token_times: Sequence[float]) -> Latency:
    num_tokens = len(token_times)
    if num_tokens == 0:
        raise ValueError("token_times is empty, at least 1 token is needed")

    time_to_first = token_times[0] - arrival

    gaps = []
    for i in range(1, num_tokens):
        gaps.append(token_times[i] - token_times[i - 1])

    per_output_token = None
    if num_tokens > 1:
        total = 0.0
        for gap in gaps:
            total = total + gap
        per_output_token = total / len(gaps)

    end_to_end = token_times[num_tokens - 1] - arrival
    return Latency(time_to_first, gaps, per_output_token, end_to_end)
