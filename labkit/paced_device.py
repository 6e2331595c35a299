"""What a paced device is told: a model's shape, how long its steps take, and how to wait."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import copysign
from pathlib import Path

from labkit.measure.simulate import cards
from labkit.measure.simulate.cost import CostError, CostModel
from labkit.model.config import DecoderConfig
from labkit.model.facts import num_parameters, num_read_in_step

BYTES = {  # of a weight, and of a number in the KV cache
    "float32": (4, 4), "bfloat16": (2, 2), "float16": (2, 2), "int8": (1, 2),
}  # fmt: skip


@dataclass(frozen=True)
class PacedModel:
    """Stands where a decoder stands: a model's shape on a device, without its weights.

    `label` is "modelled" or "recorded". `token_ids` are those that answers are made of.
    """

    config: DecoderConfig
    device: str  # a card's name, or a cost file
    dtype: str
    token_ids: Sequence[int]
    recorded: CostModel | None = None  # None on a card

    @property
    def label(self) -> str:
        return "recorded" if self.recorded and self.recorded.source == "measured" else "modelled"

    @property
    def about(self) -> str:
        if self.recorded:
            return f"paced: {self.label}, {self.recorded.about or self.device}"
        return f"paced: {self.device}, modelled from the {cards.card_named(self.device).source}"

    @property
    def kv_bytes_per_token(self) -> int:
        return self.config.kv_numbers_per_token * BYTES[self.dtype][1]

    def cost(self, block_size: int) -> CostModel:
        """How long steps take. A file's blocks are of the size that the engine has."""
        if self.recorded:
            return self.recorded
        num, per_token = num_read_in_step(self.config), self.kv_bytes_per_token
        return cards.for_card(self.device, num, per_token, block_size, BYTES[self.dtype][0])

    def room(self, block_size: int) -> int | None:
        """Bytes that the card has for keys and values beside the weights; None without a card."""
        if self.recorded:
            return None
        num, per_token = num_parameters(self.config), self.kv_bytes_per_token
        weight = BYTES[self.dtype][0]
        blocks = cards.blocks_on(self.device, num, per_token, block_size, weight)
        return blocks * per_token * block_size


def paced_model(
    device: str,
    config: DecoderConfig | Mapping,
    eos_token_ids: Iterable[int] = (),
    dtype: str | None = None,
    token_ids: Sequence[int] | None = None,
) -> PacedModel:
    """A paced device with a model of this `config`, which may be the content of config.json.

    Without `token_ids` an answer is made of any token but the `eos_token_ids`. `dtype` counts the
    bytes of weights and KV cache: on a card bfloat16 if not told, with a file float32.
    """
    config = DecoderConfig.read(config) if isinstance(config, Mapping) else config
    recorded = None if device in cards.CARDS else read_cost(device)
    dtype = dtype or ("float32" if recorded else "bfloat16")
    if dtype not in BYTES or dtype == "float32" and not recorded:
        known = [name for name in BYTES if recorded or name != "float32"]
        why = "" if recorded else "; the FLOP/s of a card are of 16-bit numbers"
        raise ValueError(f"dtype {dtype!r} on {device}: accepted are {', '.join(known)}{why}")
    if token_ids is None:
        ends = frozenset(eos_token_ids)
        token_ids = [token for token in range(config.vocab_size) if token not in ends]
    if not token_ids or not 0 <= min(token_ids) <= max(token_ids) < config.vocab_size:
        wrong = [token for token in token_ids if not 0 <= token < config.vocab_size]
        raise ValueError(
            f"token_ids to make answers of: {wrong[:1] or 'none'} given; one or more are needed, "
            f"from 0 to {config.vocab_size - 1}"
        )
    return PacedModel(config, device, dtype, token_ids, recorded)


def read_cost(file: str) -> CostModel:
    if not Path(file).is_file():
        known = ", ".join(cards.CARDS)
        raise CostError(f"there is no card or cost file {file!r}; cards are {known}")
    return CostModel.read(Path(file))


class Alarm:
    """Sleeps until a moment on `clock`, using no CPU.

    A system wakes late, Linux by some 60 µs. How late is learned here, a nudge at each wake-up so
    that a pause of the whole machine tells no more than any other, and so much is slept less.
    """

    NUDGE, TOLERATED, MOST = 2e-6, 5e-6, 2e-3  # seconds
    SHORTEST = 1e-6  # however near the moment, the system's shortest sleep comes nearest to it

    def __init__(self, clock: Callable[[], float], sleep: Callable[[float], None]):
        self.clock, self.sleep, self.late = clock, sleep, 0.0

    def sleep_until(self, moment: float) -> None:
        left = moment - self.clock()
        if left <= 0:
            return
        self.sleep(max(left - self.late, self.SHORTEST))
        error = self.clock() - moment
        if left > self.late + self.SHORTEST and abs(error) > self.TOLERATED:
            self.late = min(max(self.late + copysign(self.NUDGE, error), 0.0), self.MOST)
