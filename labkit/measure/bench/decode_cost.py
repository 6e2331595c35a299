"""What one decode step must move and compute: arithmetic on a `DecoderConfig`."""

from labkit.model.config import DecoderConfig

NUMBER_BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
SCALE_BYTES = 4  # int8: a float32 for each output channel


def products(config: DecoderConfig) -> list[tuple[int, int]]:
    """(inputs, outputs) of every product with weights in one pass, the head last."""
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    layer = [
        (config.hidden_size, query + 2 * key),  # qkv
        (query, config.hidden_size),  # o
        (config.hidden_size, 2 * config.intermediate_size),  # gate_up
        (config.intermediate_size, config.hidden_size),  # down
    ]
    return [*layer * config.num_layers, (config.hidden_size, config.vocab_size)]


def weight_bytes(config: DecoderConfig, dtype: str) -> int:
    """Every weight once; int8 has a byte for each, and the scales. Biases are left out."""
    scales = SCALE_BYTES if dtype == "int8" else 0
    return sum(n * m * NUMBER_BYTES[dtype] + m * scales for n, m in products(config))


def step_bytes(
    config: DecoderConfig, dtype: str, batch: int, context: int, kv_number_bytes: int
) -> int:
    """Bytes that a step must move: weights, `batch` rows of the embedding table, and KV.

    Each of `batch` requests reads the keys and values of its `context` tokens, its own new one
    included. Activations are left out: they stay in the caches.
    """
    embedding_number = 4 if dtype == "int8" else NUMBER_BYTES[dtype]
    embedding = batch * config.hidden_size * embedding_number
    kv = batch * context * config.kv_numbers_per_token * kv_number_bytes
    return weight_bytes(config, dtype) + embedding + kv


def step_flops(config: DecoderConfig, batch: int, context: int) -> int:
    """2 FLOP for each weight and request; attention: 4 for each number of a query and key."""
    weights = sum(n * m for n, m in products(config))
    attention = 4 * config.num_layers * config.num_heads * config.head_dim * context
    return batch * (2 * weights + attention)
