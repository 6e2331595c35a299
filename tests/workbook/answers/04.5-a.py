def find_cached(self, request: Request) -> list[int]:
    if not self.pool.prefix_caching:
        return []
    size = self.pool.block_size
    found = self.pool.find(self.hashes(request, request.num_tokens // size))
    if found and len(found) * size == request.num_tokens:
        found.pop()
    return found
