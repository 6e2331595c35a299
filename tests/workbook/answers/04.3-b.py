def slots_of(block_table: Sequence[int], start: int, end: int, block_size: int) -> list[int]:
    every = []
    for block in block_table:
        first = block * block_size
        every += list(range(first, first + block_size))
    return every[start:end]
