"""A checkpoint that is damaged or foreign is refused, and the message says which and why."""

import json

import pytest

from labkit.model import load
from labkit.model.checkpoint import ModelError, checked, damage, write_manifest
from labkit.model.sources import resolve


def cut(file, keep):
    """Leaves the first `keep` bytes; a negative number takes from the end."""
    file.write_bytes(file.read_bytes()[:keep])


def set_family(folder, family):
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["model_type"] = family
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def refusal(folder):
    with pytest.raises(ModelError) as error:
        resolve(str(folder))
    return str(error.value)


def test_a_whole_checkpoint_is_accepted(tiny_checkpoint):
    assert checked(tiny_checkpoint) == tiny_checkpoint


@pytest.mark.parametrize("keep", [0, 4, 100, -1])
def test_weights_that_are_cut_short_are_named(copy, keep):
    cut(copy / "model.safetensors", keep)
    assert str(copy / "model.safetensors") in refusal(copy)


def test_weights_one_byte_short_say_how_many_bytes_there_should_be(copy):
    size = (copy / "model.safetensors").stat().st_size
    cut(copy / "model.safetensors", -1)
    message = refusal(copy)
    assert f"{size - 1:,} bytes" in message and f"{size:,}" in message


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
@pytest.mark.parametrize("keep", [0, 50])
def test_a_json_file_that_is_cut_short_is_named(copy, file, keep):
    cut(copy / file, keep)
    assert str(copy / file) in refusal(copy)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named_and_what_is_accepted_is_said(copy, file):
    (copy / file).unlink()
    message = refusal(copy)
    assert str(copy) in message and file.split(".")[-1] in message and "accepted are" in message


def test_a_shard_that_the_index_promises_must_be_there(copy):
    index = {"weight_map": {"model.embed_tokens.weight": "model-00002-of-00002.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    assert "model-00002-of-00002.safetensors" in refusal(copy)


def test_an_unknown_family_is_named_with_the_known_ones(copy):
    set_family(copy, "mamba")
    message = refusal(copy)
    assert "'mamba'" in message and "llama, mistral, qwen2, qwen3" in message


def test_a_tokenizer_that_its_reader_refuses_is_a_model_error(copy):
    (copy / "tokenizer.json").write_text('{"version": "1.0", "model": {}}', encoding="utf-8")
    with pytest.raises(ModelError, match="could not be read"):
        load(str(copy))


def test_a_flipped_byte_shows_in_the_checksum_and_not_in_the_size(copy):
    write_manifest(copy)
    assert damage(copy, quick=False) is None
    content = bytearray((copy / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (copy / "model.safetensors").write_bytes(content)
    assert damage(copy, quick=True) is None
    assert "model.safetensors does not have the checksum" in damage(copy, quick=False)
