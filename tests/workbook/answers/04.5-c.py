def find_cached(self, request: Request) -> list[int]:
    size, known = self.pool.block_size, request.num_tokens
    count, rest = divmod(known, size)
    if rest == 0:
        count -= 1
    return self.pool.find(self.hashes(request, max(count, 0))) if self.pool.prefix_caching else []
