def next_logits(model, sequences: Sequence[list[int]], pad_token_id: int) -> torch.Tensor:
    longest = max(len(s) for s in sequences)
    ids, mask, positions = [], [], []
    for s in sequences:
        empty = longest - len(s)
        ids.append([pad_token_id] * empty + s)
        mask.append([0] * empty + [1] * len(s))
        positions.append([0] * empty + list(range(len(s))))
    given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    given = {name: torch.tensor(rows, device=model.device) for name, rows in given.items()}
    with torch.inference_mode():
        logits = model(**given, use_cache=False, logits_to_keep=1).logits
    return logits[:, 0, :]
