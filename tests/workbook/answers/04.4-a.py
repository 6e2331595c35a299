def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    parts = []
    size = self.batch.block_size
    for row, (begin, end, length) in zip(self.batch.block_tables, self.spans, strict=True):
        needed = (length + size - 1) // size
        own = gather(kv, row[:needed], length)
        parts.append(attend(q[begin:end], own, length - (end - begin)))
    return torch.cat(parts)
