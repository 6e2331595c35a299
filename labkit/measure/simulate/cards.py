"""The cost model of a card, from its maker's figures: the least that a step can take.

Nothing is launched, waited for or missed here, so real servers are slower: the label is
"modelled". Attention's own FLOP are left out; they are few below some 10,000 tokens of context.
"""

from dataclasses import dataclass

from labkit.measure.simulate.cost import CostError, CostModel

RESERVED = 0.1  # of the memory, for activations and the runtime: vLLM's gpu_memory_utilization 0.9


@dataclass(frozen=True)
class Card:
    """Published figures: dense bfloat16 FLOP/s, bytes/s, bytes; `host_bandwidth` is one way."""

    flops: float
    bandwidth: float
    memory: float
    host_bandwidth: float  # PCIe, x16
    source: str


CARDS = {
    "A100": Card(312e12, 2.039e12, 80e9, 32e9, "NVIDIA A100 80GB SXM data sheet, 2021"),
    "L4": Card(121e12, 300e9, 24e9, 32e9, "NVIDIA L4 data sheet, 2023"),
    "L40S": Card(362e12, 864e9, 48e9, 32e9, "NVIDIA L40S data sheet, 2023"),
    "H100": Card(989e12, 3.35e12, 80e9, 64e9, "NVIDIA H100 SXM data sheet, 2023"),
    "H200": Card(989e12, 4.8e12, 141e9, 64e9, "NVIDIA H200 SXM data sheet, 2024"),
    "B200": Card(2250e12, 8e12, 180e9, 64e9, "NVIDIA DGX B200 data sheet (an eighth), 2024"),
}


def card_named(name: str) -> Card:
    if name not in CARDS:
        raise CostError(f"card {name!r} is not known; accepted are {', '.join(CARDS)}")
    return CARDS[name]


def for_card(
    name: str,
    num_params: float,
    kv_bytes_per_token: float,
    block_size: int = 16,
    bytes_per_param: float = 2,
) -> CostModel:
    """Steps of a model with `num_params` parameters: max(bytes / bandwidth, FLOP / peak).

    Bytes are the weights once and the keys and values that are read; FLOP are 2 for each
    parameter and token. A swapped block crosses to or from the host over PCIe.
    """
    card = card_named(name)
    per_token = 2 * num_params / card.flops
    return CostModel(
        weights_s=num_params * bytes_per_param / card.bandwidth,
        per_prompt_token_s=per_token,
        per_decode_s=per_token,
        per_context_token_s=kv_bytes_per_token / card.bandwidth,
        per_swapped_block_s=kv_bytes_per_token * block_size / card.host_bandwidth,
        overlap=True,
        source="modelled",
        about=f"{name}, {num_params / 1e9:g}e9 parameters of {bytes_per_param:g} bytes, "
        f"{kv_bytes_per_token:,.0f} bytes of keys and values a token; {card.source}",
    )


def blocks_on(
    name: str,
    num_params: float,
    kv_bytes_per_token: float,
    block_size: int = 16,
    bytes_per_param: float = 2,
) -> int:
    """How many blocks fit beside the weights. CostError when none does."""
    card = card_named(name)
    left = card.memory * (1 - RESERVED) - num_params * bytes_per_param
    count = int(left // (kv_bytes_per_token * block_size))
    if count < 1:
        raise CostError(
            f"{num_params / 1e9:g}e9 parameters of {bytes_per_param:g} bytes don't fit a {name} "
            f"of {card.memory / 1e9:g} GB with a block to spare; take a smaller model or a "
            "larger card"
        )
    return count
