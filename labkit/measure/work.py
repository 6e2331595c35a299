"""How much a model computes, counted in tokens; no clock, so it is the same on any machine."""


def token_forwards(num_prompt_tokens: int, num_output_tokens: int, use_cache: bool) -> int:
    """How many tokens go through the model until `num_output_tokens` have been produced.

    Each output token takes one forward pass. Without a cache a pass runs over the prompt and
    all output so far. With a cache the first pass runs over the prompt, and each later one
    over the newest token only. The last output token is never fed back in either case.
    Nothing is computed for 0 output tokens.
    """
    if num_output_tokens == 0:
        return 0
    if use_cache:
        return num_prompt_tokens + (num_output_tokens - 1)
    return sum(num_prompt_tokens + done for done in range(num_output_tokens))
