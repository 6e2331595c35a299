def next_logits(model, sequences: Sequence[list[int]], pad_token_id: int) -> torch.Tensor:
    rows, mask = left_pad([list(one) for one in sequences], pad_token_id)
    on = {"device": model.device}
    mask = torch.tensor(mask, **on)
    places = torch.clamp(mask.cumsum(1) - 1, min=0)
    with torch.no_grad():
        out = model(torch.tensor(rows, **on), mask, places, use_cache=False, logits_to_keep=1)
    return out.logits.select(1, out.logits.shape[1] - 1)
