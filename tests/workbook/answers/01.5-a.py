def token_forwards(num_prompt_tokens: int, num_output_tokens: int, use_cache: bool) -> int:
    p, n = num_prompt_tokens, num_output_tokens
    if n == 0:
        return 0
    return p + n - 1 if use_cache else n * p + n * (n - 1) // 2
