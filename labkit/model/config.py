"""The shape of a Llama-family decoder, read from a checkpoint's config.json. No torch.

Four families, one decoder: Llama, Mistral, Qwen2 (bias on q, k and v) and Qwen3 (q and k
normalized per head). What a config asks for and the decoder doesn't do is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from labkit.model.checkpoint import FAMILIES, ModelError

ROPE_NUMBERS = {  # rope_type: the numbers that it needs
    "default": (),
    "linear": ("factor",),
    "llama3": (
        "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes are numbers of elements. `num_heads` is a multiple of `num_kv_heads`."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int  # tokens that a sequence may have
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: Mapping = field(default_factory=dict)  # with "rope_type" and its numbers
    tied_head: bool = False  # the output layer is the embedding table
    qk_norm: bool = False
    biased: frozenset[str] = frozenset()  # products with a bias: qkv, o, gate_up, down

    @property
    def kv_numbers_per_token(self) -> int:
        """Numbers that one token adds to the cache, over all layers: keys and values."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim

    def shape_of(self, name: str) -> tuple[int, ...]:
        """What a checkpoint's tensor measures, `model.layers.0.mlp.up_proj.weight` for one."""
        queries, keys = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        hidden, inner = self.hidden_size, self.intermediate_size
        part, kind = name.split(".")[-2:]
        shape = {
            "embed_tokens": (self.vocab_size, hidden), "lm_head": (self.vocab_size, hidden),
            "q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden),
            "o_proj": (hidden, queries), "q_norm": (self.head_dim,), "k_norm": (self.head_dim,),
            "gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner),
        }.get(part, (hidden,))  # fmt: skip
        return shape[:1] if kind == "bias" else shape

    @classmethod
    def read(cls, config: Mapping) -> "DecoderConfig":
        """From the content of config.json, as transformers 4 or 5 writes it.

        Raises ModelError that names the setting, its value and what is accepted.
        """
        family = config.get("model_type")
        check(family in FAMILIES, "model_type", family, ", ".join(FAMILIES))
        act = config.get("hidden_act", "silu")
        check(act == "silu", "hidden_act", act, "silu")
        check(not config.get("quantization_config"), "quantization_config", "set", "none")
        rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
        rope_type = rope.setdefault("rope_type", rope.get("type", "default"))
        check(rope_type in ROPE_NUMBERS, "rope_type", rope_type, ", ".join(ROPE_NUMBERS))
        for name in ROPE_NUMBERS[rope_type]:
            fits = isinstance(rope.get(name), (int, float)) and rope[name] > 0
            check(fits, f"{name} of rope_type {rope_type!r}", rope.get(name), "numbers above 0")
        partial = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
        check(partial == 1.0, "partial_rotary_factor", partial, "1.0")
        hidden, num_heads = size_in(config, "hidden_size"), size_in(config, "num_attention_heads")
        num_kv_heads = size_in(config, "num_key_value_heads", num_heads)
        fits = num_heads % num_kv_heads == 0
        check(fits, "num_key_value_heads", num_kv_heads, f"what divides {num_heads} heads")
        head_dim = size_in(config, "head_dim", hidden // num_heads)
        check(head_dim % 2 == 0, "head_dim", head_dim, "even numbers")
        return cls(
            family=family,
            vocab_size=size_in(config, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=size_in(config, "intermediate_size"),
            num_layers=size_in(config, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            max_position=max_position(config),
            rms_norm_eps=config.get("rms_norm_eps", 1e-6),
            rope_theta=rope.get("rope_theta", config.get("rope_theta", 10000.0)),
            rope_scaling=rope,
            tied_head=config.get("tie_word_embeddings", False),
            qk_norm=family == "qwen3",
            biased=biased_products(config),
        )


def check(is_fine: bool, name: str, value, accepted: str) -> None:
    if not is_fine:
        raise ModelError(f"config.json sets {name} to {value!r}; accepted: {accepted}")


def size_in(config: Mapping, name: str, default: int | None = None) -> int:
    """A size, which is 1 or more; `default` where the config has none."""
    value = default if config.get(name) is None else config[name]
    if value is None:
        raise ModelError(f"config.json has no {name!r}; it is not complete")
    check(isinstance(value, int) and value >= 1, name, value, "whole numbers from 1 on")
    return value


def biased_products(config: Mapping) -> frozenset[str]:
    """Which products have a bias: in Qwen2 always q, k and v, elsewhere what the config says."""
    family = config["model_type"]
    asked = config.get("attention_bias") and family in ("llama", "qwen3")
    attention = {"qkv"} if family == "qwen2" else {"qkv", "o"} if asked else set()
    mlp = {"gate_up", "down"} if config.get("mlp_bias") and family == "llama" else set()
    return frozenset(attention | mlp)


def max_position(config: Mapping) -> int:
    """How long a sequence may be: up to a sliding window, whose sliding is not done here.

    Within the window attention is the same with and without it.
    """
    longest = size_in(config, "max_position_embeddings", 2048)
    window = config.get("sliding_window")
    slides = config.get("use_sliding_window", config.get("model_type") == "mistral")
    return min(longest, window) if window and slides else longest
