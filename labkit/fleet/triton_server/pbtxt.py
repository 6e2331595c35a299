"""A `ModelConfig` as text that Triton Inference Server reads, and that a learner can read too."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from labkit.fleet.triton_server.model_config import (
    DynamicBatching,
    ModelConfig,
    QueuePolicy,
    Tensor,
)

WIDTH = 44  # where the comments stand


class Word(str):
    """A name of the schema, such as TYPE_INT32: written without quotes."""


@dataclass(frozen=True)
class Field:
    """One field; `value` is a scalar, a list of numbers, or the fields of a message."""

    name: str
    value: object
    comment: str = ""


def to_pbtxt(config: ModelConfig) -> str:
    """The whole file; a comment beside each field says what it does."""
    return "\n".join(lines(fields_of(config), "")) + "\n"


def lines(fields: Sequence[Field], indent: str) -> Iterator[str]:
    """Fields as lines of protobuf's text format."""
    for one in fields:
        comment = f"# {one.comment}" if one.comment else ""
        if isinstance(one.value, list) and one.value and isinstance(one.value[0], Field):
            yield f"{indent}{one.name} {{".ljust(WIDTH if comment else 0) + comment
            yield from lines(one.value, indent + "  ")
            yield indent + "}"
        else:
            yield f"{indent}{one.name}: {text_of(one.value)}".ljust(WIDTH if comment else 0) + (
                comment and ("" if len(indent + one.name) < WIDTH else " ") + comment
            )


def text_of(value) -> str:
    """A scalar, or a list of numbers, as the text format has it."""
    match value:
        case Word():
            return str(value)
        case bool():
            return str(value).lower()
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list() | tuple():
            return f"[{', '.join(map(text_of, value))}]"
    return str(value)


def fields_of(config: ModelConfig) -> list[Field]:
    fields = [
        Field("name", config.name, "its folder's name; clients ask for it by this"),
        Field("backend", config.backend, "who runs it: 1/model.py, in a process of its own"),
        Field(
            "max_batch_size", config.max_batch_size,
            "requests in one call of execute(), at most" if config.max_batch_size
            else "the server batches nothing: each request goes straight to the model",
        ),
    ]  # fmt: skip
    fields += [Field("input", tensor_fields(one)) for one in config.inputs]
    fields += [Field("output", tensor_fields(one)) for one in config.outputs]
    if config.decoupled:
        policy = [Field("decoupled", True, "any number of responses to a request: one a token")]
        fields.append(Field("model_transaction_policy", policy))
    if config.dynamic_batching:
        fields.append(Field("dynamic_batching", batching_fields(config.dynamic_batching)))
    group = [
        Field("kind", Word(config.kind), "where the server believes it to run"),
        Field("count", config.instances, "copies of the model, each with weights and engine"),
    ]
    fields.append(Field("instance_group", group))
    for key, value in config.parameters.items():
        value = [Field("string_value", value)]
        fields.append(Field("parameters", [Field("key", key), Field("value", value)]))
    return fields


def tensor_fields(one: Tensor) -> list[Field]:
    sizes = "-1 is any size" if -1 in one.dims else ""
    fields = [
        Field("name", one.name),
        Field("data_type", Word(one.data_type)),
        Field("dims", one.dims, sizes),
    ]
    if one.optional:
        fields.append(Field("optional", True, "a request may leave it out"))
    if one.ragged:
        why = "prompts of different lengths may share a batch"
        fields.append(Field("allow_ragged_batch", True, why))
    return fields


def batching_fields(batching: DynamicBatching) -> list[Field]:
    fields = []
    if batching.preferred_batch_size:
        why = "a batch of such a size leaves at once"
        fields.append(Field("preferred_batch_size", batching.preferred_batch_size, why))
    fields += [
        Field(
            "max_queue_delay_microseconds", microseconds(batching.max_queue_delay_s),
            "so long the oldest waits for company; then what is there leaves",
        ),
        Field(
            "preserve_ordering", batching.preserve_ordering,
            "whether answers must leave in the order in which requests came",
        ),
    ]  # fmt: skip
    if batching.priority_levels:
        fields += [
            Field("priority_levels", batching.priority_levels, "1 is the most urgent"),
            Field("default_priority_level", batching.default_priority_level, "if none is asked"),
        ]
    fields.append(Field("default_queue_policy", policy_fields(batching.default_queue_policy)))
    for level, policy in batching.priority_queue_policy.items():
        value = [Field("key", level, "of this level"), Field("value", policy_fields(policy))]
        fields.append(Field("priority_queue_policy", value))
    return fields


def policy_fields(policy: QueuePolicy) -> list[Field]:
    return [
        Field(
            "timeout_action", Word(policy.timeout_action),
            "who waited too long is refused" if policy.timeout_action == "REJECT"
            else "who waited too long comes after all others",
        ),
        Field(
            "default_timeout_microseconds", microseconds(policy.timeout_s),
            "time in the queue, at most" if policy.timeout_s else "0: no limit",
        ),
        Field(
            "allow_timeout_override", policy.allow_timeout_override,
            "whether a request may bring a shorter one",
        ),
        Field(
            "max_queue_size", policy.max_queue_size,
            "one more is refused at once" if policy.max_queue_size else "0: no limit",
        ),
    ]  # fmt: skip


def microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
