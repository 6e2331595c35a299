def slots_of(block_table: Sequence[int], start: int, end: int, block_size: int) -> list[int]:
    return [
        block_table[p // block_size] * block_size + p % block_size for p in range(start, end)
    ]
