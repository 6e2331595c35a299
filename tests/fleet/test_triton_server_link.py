"""The link of a model to its engine, where something breaks: who waits is told, nothing is left."""

import json
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from test_triton_server_models import SHAPE

from labkit.fleet.triton_server import engine_link
from labkit.fleet.triton_server.engine_link import EngineFailed, EngineLink
from labkit.model.sampling_params import SamplingParams
from labkit.serving.messages import Add, EngineConfig

SOON_S = 60


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SHAPE), encoding="utf-8")
    return EngineConfig(
        model=str(tmp_path), rung="continuous", dtype="bfloat16", device="paced:A100",
        options={"max_num_seqs": 2, "kv_memory": "64MB"}, max_queued_requests=8,
    )  # fmt: skip


@pytest.fixture
def folders(monkeypatch):
    made, make = [], tempfile.mkdtemp

    def kept(**options):
        made.append(Path(make(**options)))
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", kept)
    return made


class Ends:
    """Keeps why the engine is gone."""

    def __init__(self):
        self.reasons, self.has_come = [], threading.Event()

    def __call__(self, reason):
        self.reasons.append(reason)
        self.has_come.set()


def test_a_message_that_cannot_be_taken_ends_the_engine_and_is_told_once(config):
    def broken(message):
        raise LookupError("no such request")

    ends = Ends()
    link = EngineLink(config, sys.executable, broken, ends)
    link.start()
    try:
        link.send([Add("r", [5, 6], SamplingParams(max_tokens=3, ignore_eos=True), 0.0)])
        assert ends.has_come.wait(SOON_S)
        link.listener.join(SOON_S)
        assert len(ends.reasons) == 1 and "no such request" in ends.reasons[0]
        assert link.process.wait(SOON_S)  # nobody would hear it any more
    finally:
        link.close()


def test_what_cannot_be_read_is_told_to_who_starts_it(config, folders, monkeypatch):
    def broken(data):
        raise ValueError("not a message")

    monkeypatch.setattr(engine_link.messages, "decode_from_engine", broken)
    link = EngineLink(config, sys.executable, lambda message: None, Ends())
    with pytest.raises(EngineFailed, match="could not be taken.*not a message"):
        link.start()
    assert link.process.returncode is not None and not folders[0].exists()


def test_a_python_that_is_not_there_leaves_nothing(config, folders):
    link = EngineLink(config, "/nowhere/python", lambda message: None, Ends())
    with pytest.raises(EngineFailed, match="can't serve.*/nowhere/python"):
        link.start()
    assert link.context.closed and not folders[0].exists()
