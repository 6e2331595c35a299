"""A model repository: a folder for each model, with its config.pbtxt and its 1/model.py."""

import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from labkit.fleet.triton_server.model_config import (
    DynamicBatching,
    ModelConfig,
    QueuePolicy,
    Tensor,
)
from labkit.fleet.triton_server.pbtxt import to_pbtxt

MODELS = Path(__file__).parent / "models"
MOST_WAITING = 256  # in the server's queue or in the engine's, as in labkit's own server


@dataclass(frozen=True)
class Served:
    """One model of the repository, in labkit's terms.

    `batching` "dynamic" has the server make batches of whole requests, up to `max_num_seqs`;
    "continuous" leaves it to the engine. `streams`: tokens are sent one by one.
    """

    name: str
    batching: str = "continuous"
    streams: bool = True
    model: str = "smollm2-135m"
    dtype: str = "float32"
    device: str = "cpu"
    max_num_seqs: int = 8
    max_queue_delay_s: float = 0.02
    queue: QueuePolicy = QueuePolicy(max_queue_size=MOST_WAITING, timeout_s=60.0)
    priority_levels: int = 2
    kv_memory: str = "256MB"

    def __post_init__(self):
        if self.batching not in ("dynamic", "continuous"):
            raise ValueError(f"batching is {self.batching!r}; choose dynamic or continuous")
        if self.batching == "continuous" and not self.streams:
            raise ValueError(
                f"model {self.name!r}: with continuous batching answers leave as they are made; "
                "streams=False is for batching 'dynamic'"
            )

    @property
    def is_dynamic(self) -> bool:
        return self.batching == "dynamic"

    def engine(self) -> dict:
        """The `EngineConfig`: fixed batches over blocks, or continuous batching over the same.

        A paced device has continuous batching only. What gets its requests a batch at a time, and
        the next when all have ended, works in fixed batches all the same.
        """
        options = {"max_num_seqs": self.max_num_seqs, "kv_memory": self.kv_memory, "seed": 0}
        rung = "paged" if self.is_dynamic and self.device == "cpu" else "continuous"
        if rung == "continuous":
            options["prefix_caching"] = False  # the rung with fixed batches has none either
        return {
            "model": self.model,
            "rung": rung,
            "dtype": self.dtype,
            "device": self.device,
            "options": options,
            "max_queued_requests": MOST_WAITING,
        }


def config_of(served: Served, python: str = sys.executable) -> ModelConfig:
    """What the server is told of a model. `python` has torch and labkit's requirements."""
    return ModelConfig(
        name=served.name,
        inputs=[
            Tensor("token_ids", "TYPE_INT32", (-1,), ragged=served.is_dynamic),
            Tensor("max_tokens", "TYPE_INT32", (1,)),
            Tensor("ignore_eos", "TYPE_BOOL", (1,), optional=True),
        ],
        outputs=[
            Tensor("output_ids", "TYPE_INT32", (-1,)),
            Tensor("finish_reason", "TYPE_STRING", (1,)),
        ],
        max_batch_size=served.max_num_seqs if served.is_dynamic else 0,
        decoupled=served.streams,
        dynamic_batching=batching_of(served) if served.is_dynamic else None,
        parameters={"python": python, "engine": json.dumps(served.engine())},
    )


def batching_of(served: Served) -> DynamicBatching:
    """A full batch leaves at once, a smaller one after the delay; who asks for no priority is of
    the last level."""
    levels = served.priority_levels
    return DynamicBatching(
        preferred_batch_size=(served.max_num_seqs,),
        max_queue_delay_s=served.max_queue_delay_s,
        priority_levels=levels,
        default_priority_level=levels,
        default_queue_policy=served.queue,
    )


def write(folder: Path, models: Iterable[Served], python: str = sys.executable) -> Path:
    """Writes the repository; what was there of the same name is replaced."""
    for served in models:
        place = folder / served.name
        shutil.rmtree(place, ignore_errors=True)
        (place / "1").mkdir(parents=True)
        text = to_pbtxt(config_of(served, python))
        (place / "config.pbtxt").write_text(text, encoding="utf-8")
        source = MODELS / ("batched.py" if served.is_dynamic else "continuous.py")
        shutil.copyfile(source, place / "1" / "model.py")
    return folder
