"""Small random models of each family, as `transformers` builds them: the outside source.

Their weights are large enough that a wrong position, head or bias changes the next token.
"""

from functools import cache

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

VOCAB = 300
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024,
    "tie_word_embeddings": False,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}


def sizes(**changes) -> dict:
    return SIZES | changes


CONFIGS = {
    "llama": LlamaConfig(**sizes(head_dim=8)),  # 4 heads of 8 are not the 48 of the hidden size
    "llama-tied": LlamaConfig(**sizes(tie_word_embeddings=True)),
    "llama-biases": LlamaConfig(**sizes(attention_bias=True, mlp_bias=True)),
    "llama-rope-llama3": LlamaConfig(**sizes(rope_parameters=LLAMA3)),
    "llama-rope-linear": LlamaConfig(**sizes(rope_parameters=LINEAR)),
    "llama-mha": LlamaConfig(**sizes(num_key_value_heads=4)),
    "llama-mqa": LlamaConfig(**sizes(num_key_value_heads=1)),
    "llama-gqa3": LlamaConfig(**sizes(num_attention_heads=6, head_dim=16)),
    "mistral": MistralConfig(**sizes(sliding_window=None)),
    "mistral-window": MistralConfig(**sizes(sliding_window=512, head_dim=16)),
    "qwen2": Qwen2Config(**sizes(tie_word_embeddings=True)),
    "qwen3": Qwen3Config(**sizes(head_dim=16)),
}
ONE_OF_EACH = ("llama", "mistral", "qwen2", "qwen3")


@cache
def random_model(name: str):
    """A `transformers` model of `CONFIGS[name]` in float32, the same in every run.

    Biases and the weights of norms are random too: as they are made, they are all 0 or all 1.
    """
    model = AutoModelForCausalLM.from_config(CONFIGS[name], dtype=torch.float32).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(noise * 0.2 if weight.dim() > 1 else 1 + noise * 0.3)
    model.generation_config.eos_token_id = None
    return model


def random_tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


# What this machine must be able to do, asked elsewhere than in the code under test: where it can
# and labkit doesn't, a test fails and is not skipped.
HAS_VNNI = torch.cpu._is_vnni_supported()
