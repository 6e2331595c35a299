"""`bench http`: one short run of its three parts, and how they are compared."""

import json

import pytest

from labkit.measure.bench import cli, over_http


def test_a_short_run_of_all_parts(tmp_path, capsys):
    file, asked = tmp_path / "http.json", tmp_path / "asked.jsonl"
    one = '{{"id": "q{0}", "prompt": "Count to {0}.", "max_tokens": 8, "ignore_eos": true}}\n'
    asked.write_text("".join(map(one.format, range(4))))
    line = f"http --model tiny --workload {asked} --runs 2 --ttft-requests 3 --waiting 2"
    status = cli.main([*line.split(), "--output-tokens", "400", "--json", str(file)])
    said = capsys.readouterr()
    assert status == 0, said.err
    found = json.loads(file.read_text("utf-8"))
    assert [row["who"] for row in found["throughput"]] == 2 * ["engine alone", "HTTP"]
    assert all(row["tokens"] == 32 for row in found["throughput"])
    assert [(row["model"], row["requests"]) for row in found["ttft"]] == [("tiny", 3)]
    assert found["ttft"][0]["added_p50_s"] == pytest.approx(
        found["ttft"][0]["http_p50_s"] - found["ttft"][0]["alone_p50_s"]
    )
    assert [row["waiting"] for row in found["waiting"]] == [0, 2, 0, 2]
    assert "are kept" in said.out and "as long" in said.out


def test_what_is_kept_is_the_median_over_the_median():
    rows = [{"who": "engine alone", "tokens_per_s": v} for v in (90.0, 100.0, 400.0)]
    rows += [{"who": "HTTP", "tokens_per_s": v} for v in (1.0, 95.0, 96.0)]
    assert over_http.kept(rows) == 0.95
