"""Which models a server has, and what clients call them: `--model` and what belongs to it."""

import os
from argparse import Namespace
from pathlib import Path

from labkit.model.sources import DEFAULT_MODEL


def name_models(parser, options: Namespace) -> None:
    """`options.models`: every model by the name that clients call it; the first is `model`."""
    given, own = options.model or [DEFAULT_MODEL], options.served_model_name
    options.models = {}
    for text in given:
        name, model = name_and_model(text)
        if not (name and model):
            parser.error(f"--model {text!r} has an empty part; write NAME=MODEL")
        if own and (name != text or len(given) > 1):
            parser.error(f"--served-model-name {own} is for one --model without a name in it")
        name = own or name
        if name in options.models:
            parser.error(f"--model {name} is there twice; give one a name of its own, NAME=MODEL")
        options.models[name] = located(model)
    options.served_model_name, options.model = next(iter(options.models.items()))


def name_and_model(text: str) -> tuple[str, str]:
    """("chat", "tiny") from "chat=tiny"; what has no name of its own goes by its model's."""
    name, found, model = text.partition("=")
    return (name, model) if found and not place(text).exists() else (text, text)


def has_several(options: Namespace) -> bool:
    """Whether models come and go; also with one, if it is told what memory or patience it has."""
    told = options.model_memory is not None or options.model_wait is not None
    return len(options.models) > 1 or told


def refuse_for_several(parser, options: Namespace) -> None:
    """Refuses what models that come and go in one server can't have."""
    if not has_several(options) or options.replicas:
        return
    if options.home != "process":
        flag = "--in-thread" if options.home == "thread" else "--in-process"
        parser.error(f"several models have a process each; leave {flag} out")
    if options.device.startswith("cuda") and options.model_memory is None:
        told = f"--device {options.device} needs --model-memory for several models"
        parser.error(f"{told}: the GPU's, for all")


def place(model: str) -> Path:
    """A path as the person who started the server means it."""
    return Path(os.environ.get("LABKIT_STARTED_IN", "."), model)


def located(model: str) -> str:
    """A path that exists, in full; names stay as they are."""
    return str(place(model).resolve()) if place(model).exists() else model
