"""`bench offline` on `tiny`: runs, load, slots and perplexity agree with what they are made of."""

import json
import math
import statistics

import pytest

from labkit.measure.bench import cli, slots
from labkit.measure.bench import perplexity as of_text
from labkit.model import load
from labkit.model.loading import load_decoder

LENGTHS = [(20, 4), (33, 9), (5, 12)]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("offline")
    lines = [
        {"id": f"r{i}", "prompt_token_ids": [65 + i] * prompt, "max_tokens": output,
         "ignore_eos": True, "arrival_s": 50.0 * i}
        for i, (prompt, output) in enumerate(LENGTHS)
    ]  # fmt: skip
    file = folder / "w.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    options = ["--workload", str(file), "--runs", "2", "--json", str(folder / "o.json")]
    assert cli.main(["offline", "--model", "tiny", *options]) == 0
    return json.loads((folder / "o.json").read_text(encoding="utf-8"))


def test_every_run_makes_the_tokens_of_the_workload_at_once(done):
    rows = done["rows"]
    assert [(row["run"], row["tokens"]) for row in rows] == [(1, 25), (2, 25)]
    assert [row["steps"] for row in rows] == [12, 12]  # as many as the longest answer
    for row in rows:
        assert row["tokens_per_s"] == pytest.approx(row["tokens"] / row["seconds"])
        assert row["step_mean_s"] > 0
    assert done["median_tokens_per_s"] == statistics.median(r["tokens_per_s"] for r in rows)
    assert any("arrival_s" in note for note in done["notes"])


def test_the_parts_of_loading_make_the_whole(done):
    seconds = {row["name"]: row["seconds"] for row in done["load"]}
    whole = seconds.pop("from start of process to ready")
    assert 0 < seconds.pop("tokenizer, beside the weights") <= seconds["weights"]
    assert {"imports", "weights"} < set(seconds)
    assert sum(seconds.values()) == pytest.approx(whole)
    assert done["rss_after_bytes"] > 0 and done["kv_pool_bytes"] > 2**29


def test_slots_measured_are_slots_computed(done):
    rows = done["unused_slots"]
    assert [row["block_size"] for row in rows] == [8, 16, 32, 64, 128, 16]
    computed, measured = rows[1], rows[-1]
    assert (computed.pop("source"), measured.pop("source")) == ("computed", "measured")
    assert computed == measured
    filled = [slots.stored(*lengths) for lengths in LENGTHS]
    assert computed["unused_mean"] == sum(-n % 16 for n in filled) / 3


def test_perplexity_is_that_of_transformers():
    import torch

    loaded, reference = load_decoder("tiny"), load("tiny")
    token_ids = loaded.tokenizer.encode(of_text.TEXT.read_text(encoding="utf-8"))
    losses = []
    for start in range(0, len(token_ids), 512):
        window = torch.tensor([token_ids[start : start + 512]])
        with torch.inference_mode():
            logits = reference.model(input_ids=window).logits[0, :-1]
        loss = torch.nn.functional.cross_entropy(logits, window[0, 1:], reduction="none")
        losses += loss.tolist()
    value, count = of_text.perplexity(loaded)
    assert count == len(losses) == len(token_ids) - math.ceil(len(token_ids) / 512)
    assert value == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-4)


def test_perplexity_is_told_for_the_dtype_and_float32(tmp_path, monkeypatch):
    file, short = tmp_path / "o.json", tmp_path / "text.txt"
    short.write_text("A river is easy to draw. " * 5, encoding="utf-8")
    monkeypatch.setattr(of_text, "TEXT", short)
    line = ["--dtype", "bfloat16", "--perplexity", "--runs", "1", "--prefix-caching"]
    (tmp_path / "w").write_text('{"id": "a", "prompt": "x", "max_tokens": 2}', encoding="utf-8")
    line += ["--workload", str(tmp_path / "w"), "--json", str(file)]
    assert cli.main(["offline", "--model", "tiny", *line]) == 0
    written = json.loads(file.read_text(encoding="utf-8"))
    assert [row["dtype"] for row in written["perplexity"]] == ["bfloat16", "float32"]
    half, full = (row["perplexity"] for row in written["perplexity"])
    assert half == pytest.approx(full, rel=0.05)
    assert "prefix caching on" in written["limits"]


def test_the_text_is_part_of_the_package():
    from labkit import paths

    assert len(of_text.TEXT.read_text(encoding="utf-8").split()) > 1000
    assert '"**/*.txt"' in (paths.repo_root() / "pyproject.toml").read_text(encoding="utf-8")


def test_transformers_answers_the_same_requests_beside_it(tmp_path):
    file, asked = tmp_path / "o.json", tmp_path / "w.jsonl"
    lines = [
        {"id": f"r{n}", "prompt_token_ids": [5] * n, "max_tokens": n, "ignore_eos": True}
        for n in (3, 6, 4, 5, 2)
    ]
    asked.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    options = ["--workload", str(asked), "--runs", "1", "--transformers", "--attention", "torch"]
    assert cli.main(["offline", "--model", "tiny", *options, "--json", str(file)]) == 0
    done = json.loads(file.read_text(encoding="utf-8"))
    assert done["device"] == "cpu, attention torch"
    names = [row["engine"] for row in done["transformers"]]
    assert names == ["transformers, batches of 4", "transformers, continuous batching"]
    assert {row["tokens"] for row in done["transformers"]} == {20} == {done["rows"][0]["tokens"]}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["--cuda-graphs"], "--cuda-graphs is for a GPU"),
        (["--dtype", "float16"], "take bfloat16"),
        (["--dtype", "int8", "--transformers"], "choose another"),
        (["--attention", "flash"], "invalid choice"),
    ],
)
def test_what_cannot_be_measured_together_is_refused(line, told, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["offline", "--model", "tiny", *line])
    assert ended.value.code == 2 and told in capsys.readouterr().err
