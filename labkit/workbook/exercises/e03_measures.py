"""Notebook 03, what a step and a cache cost: `forward_cost` and `sequences_that_fit`."""

from types import SimpleNamespace

from labkit.workbook.registry import Case, Exercise, Mistake


def config(layers, hidden, heads, kv_heads, inner=8, vocab=10, **more):
    """A configuration with the names of `transformers`."""
    return SimpleNamespace(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=inner,
        vocab_size=vocab,
        **more,
    )


# Weights of TOY: q and o 4×4, k and v 4×2, 3 of 4×8, head 4×10: 32 + 16 + 96 + 40 = 184.
TOY = config(1, 4, 2, 1, head_dim=2)
OWN_HEADS = config(2, 4, 2, 2, head_dim=None)  # 2 layers of 4 * 16 + 96, and 40: 360 weights
NO_HEAD_DIM = config(2, 4, 2, 2)  # the same, and the name isn't even there
WIDE_HEADS = config(1, 4, 2, 1, head_dim=4)  # q and o 4×8, k and v 4×4: 96 + 96 + 40 = 232
SMOLLM2 = config(30, 576, 9, 3, 1536, 49152, head_dim=64)  # 134,479,872 weights


def _cost(shape, *given, only=None):
    def observe(part):
        cost = part.forward_cost(shape, *given)
        found = {"num_flops": cost.num_flops, "num_bytes": cost.num_bytes}
        return {only: found[only]} if only else found

    return observe


def _needs(num_flops=None, num_bytes=None):
    both = {"num_flops": num_flops, "num_bytes": num_bytes}
    return {name: value for name, value in both.items() if value is not None}


FORWARD_COST = Exercise(
    id="03.4",
    module="labkit.measure.roofline",
    symbol="forward_cost",
    core=False,
    minutes=25,
    difficulty=3,
    cases=(
        Case("one_token", _cost(TOY, 1), _needs(2 * 184 + 16, 4 * (184 + 4))),
        Case("decode_flops", _cost(TOY, 1, 3, only="num_flops"), _needs(2 * 184 + 4 * 16)),
        Case(
            "decode_bytes",
            _cost(TOY, 1, 3, only="num_bytes"),
            _needs(num_bytes=4 * (184 + 4 * 4)),
        ),
        Case("prompt_flops", _cost(TOY, 3, only="num_flops"), _needs(3 * 2 * 184 + 6 * 16)),
        Case("prompt_bytes", _cost(TOY, 3, only="num_bytes"), _needs(num_bytes=4 * (184 + 12))),
        Case("chunk", _cost(TOY, 2, 3), _needs(2 * 2 * 184 + 9 * 16, 4 * (184 + 5 * 4))),
        Case("bfloat16", _cost(TOY, 1, 0, 2), _needs(2 * 184 + 16, 2 * (184 + 4))),
        Case("own_heads", _cost(OWN_HEADS, 1), _needs(2 * 360 + 32, 4 * (360 + 16))),
        Case("no_head_dim", _cost(NO_HEAD_DIM, 1), _needs(2 * 360 + 32, 4 * (360 + 16))),
        Case("wide_heads", _cost(WIDE_HEADS, 1), _needs(2 * 232 + 32, 4 * (232 + 8))),
        Case("smollm2", _cost(SMOLLM2, 1, 1023), _needs(339_738_624, 585_105_408)),
    ),
    mistakes=(
        Mistake("one_flop", (("num_flops=2 * num_weights", "num_flops=num_weights"),)),
        Mistake(
            "kv_heads_forgotten",
            (("config.num_key_value_heads * head_dim", "config.num_attention_heads * head_dim"),),
        ),
        Mistake("cache_not_read", (("kv_width * (num_cached + num_new)", "kv_width * num_new"),)),
        Mistake("weights_for_each", (("(num_weights + kv", "(num_weights * num_new + kv"),)),
        Mistake(
            "future_computed",
            (
                (
                    "num_new * num_cached + num_new * (num_new + 1) // 2",
                    "num_new * (num_cached + num_new)",
                ),
            ),
        ),
        Mistake("always_float32", (("bytes_per_number * (num", "4 * (num"),)),
        Mistake(
            "head_dim_guessed",
            (('getattr(config, "head_dim", None) or hidden', "hidden"),),
        ),
        Mistake("gate_forgotten", (("3 * hidden", "2 * hidden"),)),
        Mistake("logits_forgotten", ((" + hidden * vocab", ""),)),
    ),
)


def _fit(shape, *given, only=None):
    def observe(part):
        answer = part.sequences_that_fit(shape, *given)
        if not isinstance(answer, tuple) or len(answer) != 2:
            return {"answer": repr(answer)}
        found = {"bytes_per_token": answer[0], "num_sequences": answer[1]}
        return {only: found[only]} if only else found

    return observe


def _room(bytes_per_token, num_sequences):
    return {"bytes_per_token": bytes_per_token, "num_sequences": num_sequences}


OPT_13B = config(40, 5120, 40, 40)  # 800 KB a token, says the paper of PagedAttention
LLAMA_3_8B = config(32, 4096, 32, 8)
QWEN3_06B = config(28, 1024, 16, 8, head_dim=128)

SEQUENCES_THAT_FIT = Exercise(
    id="03.5",
    module="labkit.measure.kv_memory",
    symbol="sequences_that_fit",
    core=False,
    minutes=15,
    difficulty=1,
    cases=(
        # A key and a value of 2 numbers of 4 bytes: 16 bytes a token, 160 a sequence of 10.
        Case("one_head", _fit(config(1, 2, 1, 1), 10, 1600, 0, 32), _room(16, 10)),
        Case("weights", _fit(config(1, 2, 1, 1), 10, 1600, 640, 32), _room(16, 6)),
        Case("rest", _fit(config(1, 2, 1, 1), 27, 1600, 0, 32), _room(16, 3)),  # 3.7
        Case("layers", _fit(config(3, 2, 1, 1), 10, 1600, 0, 32), _room(48, 3)),
        Case("fp8", _fit(config(3, 2, 1, 1), 10, 1600, 0, 8), _room(12, 13)),
        Case(
            "nothing_left",
            _fit(config(1, 2, 1, 1), 10, 1600, 2000, 32, only="num_sequences"),
            {"num_sequences": 0},
        ),
        Case("head_dim_none", _fit(config(1, 4, 2, 1, head_dim=None), 10, 1600, 0, 32),
             _room(16, 10)),
        Case("opt_13b", _fit(OPT_13B, 2048, 40 * 10**9, 26 * 10**9), _room(819_200, 8)),
        Case("llama_3_8b", _fit(LLAMA_3_8B, 1024, 80 * 10**9, 16_060_522_496), _room(131_072, 476)),
        Case("qwen3", _fit(QWEN3_06B, 1024, 24 * 10**9, 1_192_099_840), _room(114_688, 194)),
    ),
    mistakes=(
        Mistake(
            "kv_heads_forgotten",
            (("* config.num_key_value_heads", "* config.num_attention_heads"),),
        ),
        Mistake("values_forgotten", (("= 2 * config", "= config"),)),
        Mistake("one_layer", (("2 * config.num_hidden_layers *", "2 *"),)),
        Mistake("bits_as_bytes", (("kv_bits // 8", "kv_bits"),)),
        Mistake("weights_ignored", (("max(memory - weight_bytes, 0)", "memory"),)),
        Mistake(
            "rounded_up",
            (
                (
                    "left // (bytes_per_token * num_tokens)",
                    "-(-left // (bytes_per_token * num_tokens))",
                ),
            ),
        ),
        Mistake("below_zero", (("max(memory - weight_bytes, 0)", "memory - weight_bytes"),)),
        Mistake("head_dim_guessed", (('getattr(config, "head_dim", None) or (', "("),)),
    ),
)

EXERCISES = (FORWARD_COST, SEQUENCES_THAT_FIT)
