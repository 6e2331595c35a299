def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    size, rows = kv.shape[3], []
    for r, (begin, end, length) in enumerate(self.spans):
        places = torch.arange(length, device=kv.device)
        blocks = self.batch.block_tables[r][places // size]
        own = kv[blocks, :, :, places % size]  # [length, 2, kv_heads, head_dim]
        rows.append(attend(q[begin:end], own.permute(1, 2, 0, 3), length - (end - begin)))
    return torch.cat(rows)
