def draw(logits: Tensor, requests: Sequence) -> Tensor:
    drawn = []
    for row, request in enumerate(requests):
        one = logits[row : row + 1]
        one = apply_temperature(one, column([request.sampling.temperature], one))
        for name, asks, keep in FILTERS:
            value = getattr(request.sampling, name)
            if asks(value):
                one = keep(one, column([value], one))
        number = uniform(request.seed, len(request.output_token_ids))
        drawn.append(pick(one, column([number], one)))
    return torch.cat(drawn)
