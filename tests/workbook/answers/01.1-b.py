def next_token(model, token_ids: list[int]) -> int:
    num_tokens = len(token_ids)
    input_ids = torch.empty((1, num_tokens), dtype=torch.long)
    for position, token_id in enumerate(token_ids):
        input_ids[0, position] = token_id
    input_ids = input_ids.to(model.device)
    with torch.inference_mode():
        output = model(input_ids=input_ids, use_cache=False)
    all_scores = output.logits.squeeze(0)
    last_scores = all_scores[num_tokens - 1]
    best = torch.max(last_scores, dim=-1).indices
    return best.item()
