def left_pad(sequences: Sequence[list[int]], pad_token_id: int) -> tuple[list, list]:
    width = 0
    for sequence in sequences:
        width = max(width, len(sequence))
    rows, masks = [], []
    for sequence in sequences:
        row, mask = [], []
        for _ in range(width - len(sequence)):
            row.append(pad_token_id)
            mask.append(0)
        for token in sequence:
            row.append(token)
            mask.append(1)
        rows.append(row)
        masks.append(mask)
    return rows, masks
