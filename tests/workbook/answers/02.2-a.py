def next_logits(model, sequences: Sequence[list[int]], pad_token_id: int) -> torch.Tensor:
    rows, seen = left_pad(sequences, pad_token_id)
    rows, seen = (torch.as_tensor(table).to(model.device) for table in (rows, seen))
    with torch.no_grad():
        output = model(
            rows, seen, position_ids=positions_of(seen), use_cache=False, logits_to_keep=1
        )
        return output.logits.squeeze(1)
