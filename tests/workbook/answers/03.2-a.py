def attend(q: torch.Tensor, kv: torch.Tensor, start: int) -> torch.Tensor:
    n, heads, head_dim = q.shape
    group = heads // kv.shape[1]
    keys = kv[0].repeat_interleave(group, dim=0)  # [heads, start + n, head_dim]
    values = kv[1].repeat_interleave(group, dim=0)
    scores = torch.einsum("nhd,htd->hnt", q, keys) / head_dim**0.5
    positions = torch.arange(start + n, device=q.device)
    hidden = positions[None, :] > positions[start:, None]
    scores = scores.masked_fill(hidden, float("-inf"))
    return torch.einsum("hnt,htd->nhd", scores.softmax(-1), values)
