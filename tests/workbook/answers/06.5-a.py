def draw(logits: Tensor, requests: Sequence) -> Tensor:
    temperatures = column([request.sampling.temperature for request in requests], logits)
    scaled = apply_temperature(logits, temperatures)
    for name, asks, keep in FILTERS:
        for row, request in enumerate(requests):
            value = getattr(request.sampling, name)
            if asks(value):
                scaled[row : row + 1] = keep(scaled[row : row + 1], column([value], logits))
    places = [(request.seed, len(request.output_token_ids)) for request in requests]
    return pick(scaled, column([uniform(*place) for place in places], logits))
