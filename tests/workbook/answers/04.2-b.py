def free(self, block_ids: Sequence[int]) -> None:
    from collections import Counter

    for block, times in Counter(block_ids).items():
        if self.ref_counts[block] < times:
            raise ValueError(f"block {block} has {self.ref_counts[block]} holders")
    for block in block_ids:
        self.ref_counts[block] -= 1
    nobodys = [block for block in block_ids if not self.ref_counts[block]]
    useless = [block for block in nobodys if self.hash_of[block] is None]
    useful = [block for block in nobodys if self.hash_of[block] is not None]
    line = useless + list(self.free_blocks) + useful[::-1]
    self.free_blocks.clear()
    self.free_blocks.update(dict.fromkeys(line))
