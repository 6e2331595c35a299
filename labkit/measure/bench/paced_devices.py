"""The devices of `bench ipc` and `bench bottleneck`: this CPU, or a paced card with a model."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit.measure.simulate import cards
from labkit.measure.simulate.cost import CostModel


@dataclass(frozen=True)
class Size:
    """A model by what its steps read: parameters (without the table of embeddings), and bytes of
    keys and values a token in bfloat16."""

    num_params: float
    kv_bytes_per_token: int
    about: str


SIZES = {
    "1b": Size(1.24e9, 32_768, "the size of Llama-3.2-1B"),
    "8b": Size(7.5e9, 131_072, "the size of Llama-3.1-8B"),
    "32b": Size(32.0e9, 262_144, "the size of Qwen2.5-32B"),
}


@dataclass(frozen=True)
class Device:
    """`place` is "cpu" or a card; `model` a size of SIZES, else a model's name or None."""

    name: str
    place: str
    model: str | None = None

    @property
    def label(self) -> str:
        return "measured" if self.place == "cpu" else "modelled"

    @property
    def size(self) -> Size | None:
        return SIZES.get(self.model) if self.place != "cpu" else None

    def about(self) -> str:
        if self.place == "cpu":
            return f"{self.name}: measured, {self.model or 'the model'} on this processor"
        source = cards.card_named(self.place).source
        size = self.size.about if self.size else "the model itself"
        return f"{self.name}: modelled, {size} on {self.place} ({source})"

    def cost(self, host_bandwidth: float | None = None) -> CostModel:
        """Of a card with a size; with `host_bandwidth` over another link, in bytes/s."""
        size, block = self.size, 16
        found = cards.for_card(self.place, size.num_params, size.kv_bytes_per_token, block)
        if host_bandwidth is None:
            return found
        per_block = size.kv_bytes_per_token * block / host_bandwidth
        return CostModel(**found.to_json() | {"per_swapped_block_s": per_block})

    def server_options(
        self, model: str, folder: Path, host_bandwidth: float | None = None
    ) -> list[str]:
        """How `labkit.serving` is told; `model` brings the tokenizer where a size is given."""
        if self.place == "cpu":
            return ["--device", "cpu", "--model", self.model or model]
        if self.size is None:
            return ["--device", f"paced:{self.place}", "--model", self.model or model]
        file = folder / f"{self.place}-{self.model}-{host_bandwidth or 'own'}.json"
        file.write_text(json.dumps(self.cost(host_bandwidth).to_json()), encoding="utf-8")
        return ["--device", f"paced:{file}", "--model", model]


def device(text: str) -> Device:
    """PLACE or PLACE:MODEL."""
    place, _, model = text.partition(":")
    if place != "cpu" and place not in cards.CARDS:
        raise argparse.ArgumentTypeError(
            f"device {text!r} is not known; cpu, or one of {', '.join(cards.CARDS)}, each with "
            f":MODEL if you like (on a card also :{', :'.join(SIZES)})"
        )
    return Device(text, place, model or None)


def sized(text: str) -> Device:
    """CARD:SIZE."""
    found = device(text)
    if found.size is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no card with a size; one of {', '.join(cards.CARDS)}, then "
            f":{', :'.join(SIZES)}, as in H100:8b"
        )
    return found


def devices(text: str) -> Sequence[Device]:
    return [device(part) for part in dict.fromkeys(text.split(","))]
