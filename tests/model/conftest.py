"""A checkpoint of `tiny` on disk, and a cache of one's own."""

import shutil

import pytest

from labkit.model.tiny import tiny_model, tiny_tokenizer


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory):
    """A folder with `tiny`, saved as any checkpoint is. Not to be written to."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    tiny_model().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def copy(tiny_checkpoint, tmp_path):
    """A copy of that folder, to be damaged."""
    return shutil.copytree(tiny_checkpoint, tmp_path / "copy")


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    """The user cache, moved to an empty folder with a blank and Hangul in its path."""
    folder = tmp_path / "내 cache"
    monkeypatch.setenv("LABKIT_CACHE", str(folder))
    return folder
