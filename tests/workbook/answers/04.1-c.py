def allocate(self, count: int) -> list[int]:
    if self.num_free < count:
        raise OutOfBlocks(f"{self.num_free} blocks are free, {count} are needed")
    taken = list(self.free_blocks)[:count]
    for block in taken:
        del self.free_blocks[block]
        self.forget(block)
        self.ref_counts[block] += 1
    return taken
