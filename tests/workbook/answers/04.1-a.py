def allocate(self, count: int) -> list[int]:
    if len(self.free_blocks) < count:
        raise OutOfBlocks(f"only {len(self.free_blocks)} blocks are free, not {count}")
    taken = list(self.free_blocks)[:count]
    for block in taken:
        del self.free_blocks[block]
        self.ref_counts[block] += 1
        self.forget(block)
    return taken
