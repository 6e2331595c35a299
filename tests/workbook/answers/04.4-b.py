def __call__(self, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(q)
    size, group = self.batch.block_size, q.shape[1] // kv.shape[2]
    for r, (begin, end, length) in enumerate(self.spans):
        table = self.batch.block_tables[r].tolist()
        places = [(table[p // size], p % size) for p in range(length)]
        keys = torch.stack([kv[block, 0, :, offset] for block, offset in places])
        values = torch.stack([kv[block, 1, :, offset] for block, offset in places])
        for row in range(begin, end):
            seen = length - (end - row) + 1
            for head in range(q.shape[1]):
                k, v = keys[:seen, head // group], values[:seen, head // group]
                weights = torch.softmax(k @ q[row, head] / q.shape[2] ** 0.5, dim=0)
                out[row, head] = weights @ v
    return out
