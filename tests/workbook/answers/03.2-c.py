def attend(q: torch.Tensor, kv: torch.Tensor, start: int) -> torch.Tensor:
    n, heads, head_dim = q.shape
    group = heads // kv.shape[1]
    rows = []
    for i in range(n):
        one = q[i].reshape(kv.shape[1], group, head_dim)
        keys, values = kv[0, :, : start + i + 1], kv[1, :, : start + i + 1]
        scores = one @ keys.transpose(1, 2) * head_dim**-0.5
        rows.append((scores.softmax(-1) @ values).reshape(heads, head_dim))
    return torch.stack(rows)
