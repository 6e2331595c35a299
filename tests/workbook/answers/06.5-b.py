def draw(logits, requests):
    drawn = []
    for row, request in zip(logits, requests):
        asked = request.sampling
        one = apply_temperature(row[None], column([asked.temperature], logits))
        for name, asks, keep in FILTERS:
            value = getattr(asked, name)
            one = keep(one, column([value], logits)) if asks(value) else one
        number = uniform(request.seed, len(request.output_token_ids))
        drawn.append(pick(one, column([number], logits)))
    return torch.cat(drawn)
