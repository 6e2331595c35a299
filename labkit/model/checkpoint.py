"""A checkpoint on disk: a folder with config.json, *.safetensors and a tokenizer.

Says whether one is all there, and of a family that labkit runs. Standard library only.
"""

import hashlib
import json
import struct
from pathlib import Path

from labkit.paths import write_atomic

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
MANIFEST = "labkit-manifest.json"  # size and sha256 of every file; written last
ACCEPTED = (
    "accepted are 'smollm2-135m', 'tiny', a folder with config.json, *.safetensors and "
    "tokenizer.json, or a hub name such as 'Qwen/Qwen3-0.6B', of the families "
    + ", ".join(FAMILIES)
)


class ModelError(ValueError):
    """A model that can't be had or read; the message names it, the reason and what is accepted."""


def checked(folder: Path) -> Path:
    """`folder` itself, if it holds a checkpoint of a known family that is all there.

    Raises ModelError that says which file is missing, cut short or of an unknown family.
    """
    family = read_json(folder / "config.json").get("model_type")
    if family not in FAMILIES:
        raise ModelError(f"{folder} holds a model of the family {family!r}; {ACCEPTED}")
    index = folder / "model.safetensors.index.json"
    promised = read_json(index).get("weight_map", {}).values() if index.exists() else []
    weights = {*folder.glob("*.safetensors"), *(folder / name for name in promised)}
    if not weights:
        raise ModelError(f"{folder} has no *.safetensors file; {ACCEPTED}")
    for file in sorted(weights):
        check_whole(file)
    if not (folder / "tokenizer.model").exists():
        read_json(folder / "tokenizer.json")
    return folder


def read_json(file: Path) -> dict:
    """The JSON object in a file. Raises ModelError when there is none, or half of one."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} is missing or damaged ({error}); {ACCEPTED}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{file} holds no JSON object; {ACCEPTED}")
    return content


def check_whole(file: Path) -> None:
    """Raises ModelError unless a safetensors file is as long as its own header says.

    The format: 8 bytes with the header's length, the header as JSON, then the tensors, whose
    offsets are counted from the header's end.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(length, size)))
        end = max(t["data_offsets"][1] for name, t in header.items() if name != "__metadata__")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ModelError(f"{file} is missing or damaged ({error}); fetch it again") from None
    if size != 8 + length + end:
        raise ModelError(
            f"{file} is cut short or damaged: {size:,} bytes, and its header promises "
            f"{8 + length + end:,}; fetch it again"
        )


def sha256(file: Path) -> str:
    """The checksum of a file, as hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_manifest(folder: Path) -> None:
    """Notes size and sha256 of every file in `folder`, for `damage` to compare with."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    facts = {p.name: {"bytes": p.stat().st_size, "sha256": sha256(p)} for p in files}
    write_atomic(folder / MANIFEST, json.dumps(facts, indent=1) + "\n")


def damage(folder: Path, quick: bool) -> str | None:
    """What differs from the manifest, or None. `quick` compares sizes, otherwise every byte."""
    for name, facts in read_json(folder / MANIFEST).items():
        file = folder / name
        size = file.stat().st_size if file.exists() else 0
        if size != facts["bytes"]:
            return f"{file} has {size:,} bytes, {facts['bytes']:,} expected"
        if not quick and sha256(file) != facts["sha256"]:
            return f"{file} does not have the checksum that it was written with"
    return None
