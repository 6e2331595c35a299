def allocate(self, count: int) -> list[int]:
    missing = count - self.num_free
    if missing > 0:
        raise OutOfBlocks("missing: " + str(missing))
    result = []
    while len(result) < count:
        head = next(iter(self.free_blocks))
        self.free_blocks.pop(head)
        name = self.hash_of[head]
        if name is not None:
            self.hash_of[head] = None
            self.block_of.pop(name)
        self.ref_counts[head] = 1
        result.append(head)
    return result
