def left_pad(sequences: Sequence[list[int]], pad_token_id: int) -> tuple[list, list]:
    rows, marks, width = [], [], 0
    for one in sequences:
        width = len(one) if len(one) > width else width
    for one in sequences:
        row, mark = list(reversed(one)), [1 for _ in one]
        while len(row) < width:
            row.append(pad_token_id)
            mark.insert(0, 0)
        rows.append(row[::-1])
        marks.append(mark)
    return rows, marks
