def next_token(model, token_ids: list[int]) -> int:
    with torch.no_grad():
        input_ids = torch.tensor([token_ids], dtype=torch.int64, device=model.device)
        return int(model(input_ids=input_ids, use_cache=False).logits[0, -1].argmax())
