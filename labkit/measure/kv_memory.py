"""How much memory keys and values take, and how many sequences a memory can hold.

The count is that of Kwon et al., "Efficient Memory Management for Large Language Model Serving
with PagedAttention" (2023), for models whose query heads share kv heads as well.
"""


def sequences_that_fit(
    config, num_tokens: int, memory: int, weight_bytes: int, kv_bits: int = 16
) -> tuple[int, int]:
    """What one token costs in the KV cache, and how many sequences of `num_tokens` fit.

    In each layer a token leaves a key and a value, `[num_key_value_heads, head_dim]` each, in
    numbers of `kv_bits` bits: 32 for float32, 16 for bfloat16, 8 for fp8. `memory` bytes hold
    the model's weights, `weight_bytes`, and beside them the cache. `config` is the configuration
    of a Llama-family model as `transformers` has it; without `head_dim`, or with None, it is
    `hidden_size` divided by `num_attention_heads`.

    Returns `(bytes_per_token, num_sequences)`, two whole numbers. Half a sequence doesn't fit;
    when the weights alone are too large the second is 0.
    """
    head_dim = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    numbers_per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim
    bytes_per_token = numbers_per_token * kv_bits // 8
    left = max(memory - weight_bytes, 0)
    return bytes_per_token, left // (bytes_per_token * num_tokens)
