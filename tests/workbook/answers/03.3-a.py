def next_batch(self) -> list[Request]:
    batch = super().next_batch()
    for row in range(len(batch)):
        batch[row].block_table = [row]
        batch[row].num_computed_tokens = 0
    return batch
