def token_forwards(num_prompt_tokens: int, num_output_tokens: int, use_cache: bool) -> int:
    total = 0
    num_seen = 0  # tokens that an earlier pass left in the cache
    length = num_prompt_tokens
    for _ in range(num_output_tokens):
        total += length - num_seen
        if use_cache:
            num_seen = length
        length += 1
    return total
