def next_batch(self) -> list[Request]:
    taken = []
    for request in super(CachedEngine, self).next_batch():
        request.num_computed_tokens = 0
        request.block_table = [len(taken)]
        taken.append(request)
    return taken
