"""`bench ladder` on `tiny`: the figures of its rows agree with the workload and each other."""

import json

import pytest

from labkit.measure.bench import cli, ladder
from labkit.measure.work import token_forwards
from labkit.rungs import RUNGS

LINES = [
    {"id": "a", "prompt_token_ids": [*range(1, 20)], "max_tokens": 5, "ignore_eos": True},
    {"id": "b", "prompt_token_ids": [7, 8], "max_tokens": 9, "ignore_eos": True},
    {"id": "c", "prompt_token_ids": [9] * 40, "max_tokens": 3, "ignore_eos": True,
     "arrival_s": 0.001, "tenant": "t"},
]  # fmt: skip
KV_BYTES = 2 * 2 * 2 * 16 * 4  # a token of tiny: layers, keys and values, KV heads, 16 float32


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The JSON of one run over all rungs, and the folder that it wrote to."""
    folder = tmp_path_factory.mktemp("ladder")
    file = folder / "w.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in LINES), encoding="utf-8")
    options = ["--workload", file, "--json", folder / "l.json", "--plot", folder / "l.png"]
    assert cli.main(["ladder", "--model", "tiny", *map(str, options)]) == 0
    return json.loads((folder / "l.json").read_text(encoding="utf-8")), folder


def work(use_cache):
    return sum(
        token_forwards(len(line["prompt_token_ids"]), line["max_tokens"], use_cache)
        for line in LINES
    )


def test_every_rung_makes_the_tokens_of_the_workload_and_the_same(done):
    rows = done[0]["rows"]
    assert [row["rung"] for row in rows] == list(RUNGS)
    assert [row["tokens"] for row in rows] == [17] * len(RUNGS)
    assert [row["differs"] for row in rows] == [[]] * len(RUNGS)


def test_the_figures_of_a_row_agree(done):
    for row in done[0]["rows"]:
        assert row["tokens_per_s"] == pytest.approx(row["tokens"] / row["seconds"])
        assert 0 < row["ttft_p50_s"] <= row["ttft_p99_s"] <= row["seconds"]
        assert 0 < row["itl_p50_s"] <= row["itl_p99_s"]
        assert row["ttft_p50_s"] < row["e2e_p50_s"] <= row["seconds"]


def test_token_forwards_are_those_of_the_formula(done):
    forwards = {row["rung"]: row["token_forwards"] for row in done[0]["rows"]}
    assert forwards["naive"] == work(use_cache=False)
    assert forwards["cached"] == forwards["paged"] == forwards["continuous"] == work(True)
    assert forwards["static"] > forwards["cached"]


def test_kv_memory_is_rows_or_blocks(done):
    rows = {row["rung"]: row for row in done[0]["rows"]}
    assert rows["naive"]["kv_held_bytes"] == rows["static"]["kv_held_bytes"] == 0
    assert rows["naive"]["kv_unused"] is None
    assert rows["cached"]["kv_held_bytes"] == 4 * 512 * KV_BYTES
    for rung in ("paged", "continuous"):
        assert rows[rung]["kv_held_bytes"] % (16 * KV_BYTES) == 0
        assert 0 < rows[rung]["kv_held_bytes"] < rows["cached"]["kv_held_bytes"]
        assert 0 < rows[rung]["kv_unused"] < rows["cached"]["kv_unused"] < 1


def test_a_picture_is_drawn_and_what_is_not_used_is_said(done):
    content, folder = done
    assert (folder / "l.png").read_bytes().startswith(b"\x89PNG")
    assert any("tenant" in note for note in content["notes"])


def test_differences_name_the_request_and_the_token():
    expected = {"a": [1, 2, 3], "b": [1, 2], "c": [5]}
    found = {"a": [1, 9, 3], "b": [1], "c": [5]}
    assert ladder.differences(expected, found) == ["a@1", "b@1"]


@pytest.mark.parametrize(
    "text, told",
    [
        ('{"id": "a"}', "line 1: field 'max_tokens' is missing"),
        ('{"id": "a", "max_tokens": 600, "prompt_token_ids": [1]}', "positions for 512"),
        (None, "can't be read"),
    ],
)
def test_a_workload_that_can_not_be_run_is_one_line(text, told, tmp_path, capsys):
    file = tmp_path / "w.jsonl"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    line = ["--workload", str(file), "--plot", str(tmp_path / "l.png")]
    assert cli.main(["ladder", "--model", "tiny", "--rungs", "paged", *line]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("FAIL bench ladder: ") and told in last
    assert not (tmp_path / "l.png").exists()


def test_a_model_that_is_not_there_is_one_line(capsys):
    assert cli.main(["ladder", "--model", "nothing"]) == 1
    assert "there is no model 'nothing'" in capsys.readouterr().err.splitlines()[-1]
