"""config.pbtxt, the file that tells Triton Inference Server how to run a model.

The dataclasses are the parts of its schema (`model_config.proto`) that labkit uses, under the
names that they have there; `pbtxt` writes them, each with a comment: what it does to an LLM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ACTIONS = ("REJECT", "DELAY")


def at_least(name: str, value: float, least: float, why: str) -> None:
    if value < least:
        raise ValueError(f"{name} is {value}; at least {least} is needed ({why})")


@dataclass(frozen=True)
class Tensor:
    """An input or output. A dimension of -1 may have any size; the batch's own is left out.

    `ragged`: requests whose sizes differ may share a batch. Without it the dynamic batcher puts
    only prompts of equal length together, which for text is nearly none.
    """

    name: str
    data_type: str  # "TYPE_INT32", "TYPE_BOOL", "TYPE_STRING", …
    dims: tuple[int, ...]
    optional: bool = False
    ragged: bool = False


@dataclass(frozen=True)
class QueuePolicy:
    """What becomes of requests that wait for the dynamic batcher.

    A request that waits longer than `timeout_s` is rejected, or served after all others
    ("DELAY"). `max_queue_size` 0 is no limit, as `timeout_s` 0 is none.
    """

    max_queue_size: int = 0
    timeout_s: float = 0.0
    timeout_action: str = "REJECT"
    allow_timeout_override: bool = True  # a request may bring a shorter timeout of its own

    def __post_init__(self):
        if self.timeout_action not in ACTIONS:
            raise ValueError(
                f"timeout_action is {self.timeout_action!r}; choose one of {', '.join(ACTIONS)}"
            )
        at_least("max_queue_size", self.max_queue_size, 0, "0 is no limit")
        at_least("timeout_s", self.timeout_s, 0, "0 is no limit")


@dataclass(frozen=True)
class DynamicBatching:
    """Requests that wait become one call of the model: batching of whole requests.

    A batch leaves when it has a preferred size, is as large as `max_batch_size`, or its oldest
    request has waited for `max_queue_delay_s`. Level 1 is the most urgent of `priority_levels`.
    """

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_s: float = 0.0
    preserve_ordering: bool = False
    priority_levels: int = 0
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy = QueuePolicy()
    priority_queue_policy: Mapping[int, QueuePolicy] = field(default_factory=dict)

    def __post_init__(self):
        at_least("max_queue_delay_s", self.max_queue_delay_s, 0, "0 never waits for company")
        at_least("priority_levels", self.priority_levels, 0, "0 has no levels")
        levels = range(1, self.priority_levels + 1)
        default = [self.default_priority_level] if self.priority_levels else []
        for level in [*default, *self.priority_queue_policy]:
            if level not in levels:
                raise ValueError(
                    f"priority level {level} is none of the {self.priority_levels} that there are; "
                    "they count from 1"
                )


@dataclass(frozen=True)
class ModelConfig:
    """One model of the repository.

    `max_batch_size` 0: the server hands requests on as they come, and batches nothing itself.
    `decoupled`: a request may have any number of responses, which is how tokens are streamed.
    `parameters` are handed to the model as text.
    """

    name: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    max_batch_size: int = 0
    decoupled: bool = False
    dynamic_batching: DynamicBatching | None = None
    instances: int = 1
    kind: str = "KIND_CPU"
    parameters: Mapping[str, str] = field(default_factory=dict)
    backend: str = "python"

    def __post_init__(self):
        at_least("max_batch_size", self.max_batch_size, 0, "0 leaves batching to the model")
        at_least("instances", self.instances, 1, "each is a copy of the model")
        batching = self.dynamic_batching
        if batching is not None and self.max_batch_size < 1:
            raise ValueError("dynamic_batching needs max_batch_size of 1 or more; it is 0")
        largest = max(batching.preferred_batch_size, default=0) if batching else 0
        if largest > self.max_batch_size:
            raise ValueError(
                f"preferred_batch_size has {largest}, more than max_batch_size "
                f"{self.max_batch_size}; raise that, or leave it out"
            )
