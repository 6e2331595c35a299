"""What can be chosen in the capstone, checked when it is made."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from labkit.engine.policies import POLICIES
from labkit.engine.policies.preemption import PREEMPTIONS
from labkit.measure.cost import PRICES
from labkit.measure.simulate import cards

MODEL = {"num_params": 8e9, "kv_bytes_per_token": 131_072.0}  # Llama 3.1 8B in bfloat16
BLOCK_SIZE = 16
ROUTERS = ("round-robin", "least-loaded", "power-of-two", "pools")
CHOICES = {
    "card": [card for card in cards.CARDS if card in PRICES],
    "policy": [*POLICIES],
    "preemption": [*PREEMPTIONS],
    "router": [*ROUTERS],
}
LEAST_REPLICAS = 2  # one alone is no service: when it is lost, so are all promises
MOST = {"replicas": 64, "max_num_batched_tokens": 65_536, "max_num_seqs": 4096, "dedicated": 63}


class ConfigurationError(ValueError):
    """A choice that there is not; the message names the field, the value and the limit."""


@dataclass(frozen=True)
class Configuration:
    """One deployment of the model. The defaults keep every promise, and cost more than need be.

    Each replica is one `card` with a scheduler of its own. With the router "pools" the first
    `dedicated` replicas are for urgent requests (`labkit.fleet.pools`); `urgent_above` and
    `lend_below` are its rules. Raises ConfigurationError.
    """

    card: str = "H100"
    replicas: int = 5
    policy: str = "fcfs"
    max_num_batched_tokens: int = 2048  # in a step
    max_num_seqs: int = 64  # running requests
    num_blocks: int | None = None  # of 16 tokens, on each card; None: what fits beside the weights
    preemption: str = "recompute"
    router: str = "least-loaded"
    dedicated: int = 0
    urgent_above: int = 4096  # tokens under way from which an urgent request may leave its pool
    lend_below: int = 0  # tokens under way below which a dedicated replica helps the others

    def __post_init__(self):
        for name, accepted in CHOICES.items():
            value = getattr(self, name)
            check(name, value, value in accepted, ", ".join(accepted))
        for name, least in {
            "replicas": LEAST_REPLICAS, "max_num_batched_tokens": 1, "max_num_seqs": 1,
            "dedicated": 0, "urgent_above": 0, "lend_below": 0,
        }.items():  # fmt: skip
            value, most = getattr(self, name), MOST.get(name, 10**6)
            fine = type(value) is int and least <= value <= most
            check(name, value, fine, f"whole numbers from {least} to {most:,}")
        self.check_blocks()
        self.check_pools()

    def check_blocks(self) -> None:
        most = cards.blocks_on(self.card, **MODEL, block_size=BLOCK_SIZE)
        value = self.num_blocks
        fine = value is None or type(value) is int and 1 <= value <= most
        check("num_blocks", value, fine, f"1 to {most:,}, what {self.card} holds, or None for all")

    def check_pools(self) -> None:
        if self.router != "pools":
            for name in ("dedicated", "urgent_above", "lend_below"):
                is_default = getattr(self, name) == getattr(Configuration, name)
                check(name, getattr(self, name), is_default, "the router pools: only it has pools")
            return
        fine = 1 <= self.dedicated < self.replicas
        wanted = f"1 to {self.replicas - 1} of the {self.replicas} replicas"
        check("dedicated", self.dedicated, fine, wanted)

    @property
    def blocks(self) -> int:
        """KV blocks of each card."""
        return self.num_blocks or cards.blocks_on(self.card, **MODEL, block_size=BLOCK_SIZE)

    @property
    def differences(self) -> dict:
        """The fields that are not as in the default."""
        return {f.name: getattr(self, f.name) for f in fields(self)
                if getattr(self, f.name) != f.default}  # fmt: skip

    def __str__(self) -> str:
        told = [f"{name} {value}" for name, value in self.differences.items()
                if name not in ("card", "replicas")]  # fmt: skip
        return ", ".join([f"{self.replicas} x {self.card}", *told])

    def to_json(self) -> dict:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict) -> "Configuration":
        known = [f.name for f in fields(cls)]
        for name in values:
            check("field", name, name in known, ", ".join(known))
        return cls(**values)

    @classmethod
    def read(cls, file: Path) -> "Configuration":
        """From a JSON file. Raises ConfigurationError that names file and field."""
        try:
            values = json.loads(Path(file).read_text(encoding="utf-8"))
            if not isinstance(values, dict):
                raise ConfigurationError("this is no JSON object")
            return cls.from_json(values)
        except OSError as error:
            why = error.strerror or error
            raise ConfigurationError(f"configuration {file} can't be read: {why}") from None
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(f"configuration {file}: {error}") from None


def check(name: str, value, is_fine: bool, accepted: str) -> None:
    if not is_fine:
        raise ConfigurationError(f"{name} is {value!r}; accepted: {accepted}")


GREEDY = Configuration(replicas=2)  # the fewest that keep up: every answer comes, at some time
