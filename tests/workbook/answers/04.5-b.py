def find_cached(self, request: Request) -> list[int]:
    pool, found, parent = self.pool, [], root_hash(request.cache_salt)
    tokens = request.token_ids
    end = pool.block_size
    while pool.prefix_caching and end < len(tokens):
        parent = hash_block(parent, tokens[end - pool.block_size : end])
        if parent not in pool.block_of:
            break
        found.append(pool.block_of[parent])
        end += pool.block_size
    return found
