"""`simulate --capacity`, `--slo`, `--price` and `--dedicated`."""

import json

import pytest

from labkit.measure.simulate import cli

SMALL = ["--synthetic", "conv", "--requests", "60"]


def simulated(tmp_path, *line):
    file = tmp_path / "out.json"
    assert cli.main([*line, "--json", str(file)]) == 0
    return json.loads(file.read_text("utf-8"))


def test_the_capacity_of_two_replicas_is_above_that_of_one(tmp_path, capsys):
    limits = ["--slo", "llama3.1-8b-interactive", "--card", "L40S", "--rates", "0.5,200"]
    one = simulated(tmp_path, *SMALL, *limits, "--capacity")
    two = simulated(tmp_path, *SMALL, *limits, "--capacity", "--replicas", "2")
    rate = one["capacity"]["rate"]
    assert 0.5 < rate < one["capacity"]["fails_at"] <= rate * 1.05 + 1e-9
    assert two["capacity"]["rate"] > rate
    for row in one["trials"]:
        assert row["is_met"] == (row["slo_met"] >= 0.99) and row["requests"] == 60
    assert "list price of AWS" in capsys.readouterr().out


def test_a_search_of_no_use_says_so(tmp_path, capsys):
    none = simulated(tmp_path, *SMALL, "--slo-ttft-ms", "0.001", "--capacity")
    assert none["capacity"]["rate"] == 0.0 and len(none["trials"]) == 1
    all_of_them = simulated(
        tmp_path, *SMALL, "--slo-e2e-ms", "1e6", "--capacity", "--rates", "1,2", "--price", "2"
    )
    assert all_of_them["capacity"] == {"rate": 2.0, "fails_at": None, "share": 0.99}
    told = capsys.readouterr().out
    assert "capacity: none" in told and "2 requests/s or more" in told and "as told" in told


def test_a_trace_is_stretched_to_each_rate(tmp_path):
    trace = tmp_path / "trace.csv"
    rows = [f"2023-11-16 18:17:{i:02}.0,100,20" for i in range(40)]
    trace.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]), "utf-8")
    line = ["--trace", str(trace), "--slo-e2e-ms", "1e6", "--capacity", "--rates", "2,4"]
    found = simulated(tmp_path, *line)
    seconds = [row["seconds"] for row in found["trials"]]
    assert [row["requests"] for row in found["trials"]] == [40, 40]
    assert seconds[0] == pytest.approx(39 / 2, rel=0.05) == pytest.approx(2 * seconds[1], rel=0.05)


def test_a_run_with_an_slo_has_a_cost(tmp_path, capsys):
    found = simulated(tmp_path, *SMALL, "--slo", "llama3.1-8b", "--replicas", "2", "--price", "3.6")
    expected = 2 * 3.6 * found["simulated_s"] / 3600 / found["good_tokens"] * 1e6
    assert found["cost_per_million"] == pytest.approx(expected)
    none = simulated(tmp_path, *SMALL, "--slo-ttft-ms", "0.001")
    assert none["good_tokens"] == 0 and none["cost_per_million"] is None
    assert "none has a price" in capsys.readouterr().out
    assert "cost_per_million" not in simulated(tmp_path, *SMALL)


def test_dedicated_replicas_serve_only_urgent_requests(tmp_path, capsys):
    workload = tmp_path / "w.jsonl"
    lines = [
        {"id": f"r{i}", "prompt": "x" * 4000, "max_tokens": 50, "arrival_s": i / 10, "priority": 2}
        for i in range(20)
    ]
    workload.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    line = ["--workload", str(workload), "--replicas", "3", "--dedicated", "1"]
    found = simulated(tmp_path, *line)
    busy = next(row for row in found["replica_use"] if row["what"] == "time spent computing")
    assert busy["least"] == 0.0 and busy["most"] > 0.0
    assert "1 of them dedicated to urgent requests" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line, told",
    [
        (["--capacity"], "give --slo"),
        (["--price", "3"], "give --slo"),
        (["--slo-share", "95"], "--capacity; add it"),
        (["--rates", "1,2"], "--capacity; add it"),
        (["--slo", "mixtral-8x7b", "--capacity", "--rate", "3"], "leave out --workload, --rate"),
        (["--slo", "mixtral-8x7b", "--capacity", "--trial-seconds", "9"], "leave out --requests"),
        (["--dedicated", "1"], "leaves no shared one"),
    ],
)
def test_what_cant_be_asked_is_told_in_one_line(line, told, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main([*SMALL, *line])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and told in error and error.count("\n") == 1
