def slots_of(block_table: Sequence[int], start: int, end: int, block_size: int) -> list[int]:
    pages = [range(b * block_size, (b + 1) * block_size) for b in block_table]
    every = [slot for page in pages for slot in page]
    return every[start:end]
