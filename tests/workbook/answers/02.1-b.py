def left_pad(sequences: Sequence[list[int]], pad_token_id: int) -> tuple[list, list]:
    width = len(max(sequences, key=len))
    table = torch.full((len(sequences), width), pad_token_id)
    seen = torch.zeros_like(table)
    for row, sequence in enumerate(sequences):
        table[row, width - len(sequence) :] = torch.tensor(sequence)
        seen[row, width - len(sequence) :] = 1
    return table.tolist(), seen.tolist()
