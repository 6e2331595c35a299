def attend(q: torch.Tensor, kv: torch.Tensor, start: int) -> torch.Tensor:
    import math

    out = torch.zeros_like(q)
    for i in range(q.shape[0]):
        seen = start + i + 1
        for head in range(q.shape[1]):
            shared = head * kv.shape[1] // q.shape[1]
            keys, values = kv[0, shared, :seen], kv[1, shared, :seen]
            scores = keys @ q[i, head] / math.sqrt(q.shape[2])
            weights = torch.exp(scores - scores.max())
            out[i, head] = (weights / weights.sum()) @ values
    return out
