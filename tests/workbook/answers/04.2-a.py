def free(self, block_ids: Sequence[int]) -> None:
    for position in range(len(block_ids) - 1, -1, -1):
        block = block_ids[position]
        holders = self.ref_counts[block]
        if holders <= 0:
            raise ValueError(f"nobody holds block {block}")
        self.ref_counts[block] = holders - 1
        if holders > 1:
            continue
        cached = self.hash_of[block] is not None
        self.free_blocks[block] = None
        self.free_blocks.move_to_end(block, last=cached)
