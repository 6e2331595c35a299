def next_batch(self) -> list[Request]:
    batch = []
    while self.line and len(batch) < self.batch_size:
        request = self.line.popleft()
        request.num_computed_tokens = 0
        request.block_table = [len(batch)]
        batch.append(request)
    return batch
