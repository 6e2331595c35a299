def free(self, block_ids: Sequence[int]) -> None:
    for block in list(block_ids)[::-1]:
        holders = self.ref_counts[block]
        if not holders:
            raise ValueError(f"nobody holds block {block}")
        self.ref_counts[block] = holders - 1
        if holders > 1:
            continue
        self.free_blocks[block] = None
        self.free_blocks.move_to_end(block, last=self.hash_of[block] is not None)
