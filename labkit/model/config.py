"""The shape of a Llama-family decoder, read from a checkpoint's config.json. No torch.

Four families, one decoder: Llama, Mistral, Qwen2 (bias on q, k and v) and Qwen3 (q and k
normalized per head). What a config asks for and the decoder doesn't do is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from labkit.model.checkpoint import FAMILIES, ModelError

ROPE_TYPES = ("default", "linear", "llama3")


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

    @property
    def kv_numbers_per_token(self) -> int:
        """Numbers that one token adds to the cache, over all layers: keys and values."""
        return self.num_layers * 2 * self.num_kv_heads * self.head_dim

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
        check(rope_type in ROPE_TYPES, "rope_type", rope_type, ", ".join(ROPE_TYPES))
        partial = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
        check(partial == 1.0, "partial_rotary_factor", partial, "1.0")
        try:
            num_heads, hidden = config["num_attention_heads"], config["hidden_size"]
            return cls(
                family=family,
                vocab_size=config["vocab_size"],
                hidden_size=hidden,
                intermediate_size=config["intermediate_size"],
                num_layers=config["num_hidden_layers"],
                num_heads=num_heads,
                num_kv_heads=config.get("num_key_value_heads") or num_heads,
                head_dim=config.get("head_dim") or hidden // num_heads,
                max_position=max_position(config),
                rms_norm_eps=config.get("rms_norm_eps", 1e-6),
                rope_theta=rope.get("rope_theta", config.get("rope_theta", 10000.0)),
                rope_scaling=rope,
                tied_head=config.get("tie_word_embeddings", False),
                qk_norm=family == "qwen3",
            )
        except KeyError as error:
            raise ModelError(f"config.json has no {error}; it is not complete") from None


def check(is_fine: bool, name: str, value, accepted: str) -> None:
    if not is_fine:
        raise ModelError(f"config.json sets {name} to {value!r}; accepted: {accepted}")


def max_position(config: Mapping) -> int:
    """How long a sequence may be: up to a sliding window, whose sliding is not done here.

    Within the window attention is the same with and without it.
    """
    longest = config.get("max_position_embeddings", 2048)
    window = config.get("sliding_window")
    slides = config.get("use_sliding_window", config.get("model_type") == "mistral")
    return min(longest, window) if window and slides else longest
