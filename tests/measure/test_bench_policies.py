"""`bench policies` on the tiny model: the tables are made of what happened."""

import json

import pytest

from labkit.measure import workload
from labkit.measure.bench import cli, policies
from labkit.measure.bench.drive import Run

LINES = [
    {"id": "b0", "prompt_token_ids": [1] * 20, "max_tokens": 30, "tenant": "batch", "priority": 2},
    {"id": "b1", "prompt_token_ids": [2] * 20, "max_tokens": 30, "tenant": "batch", "priority": 2},
    {"id": "c0", "prompt_token_ids": [3] * 4, "max_tokens": 4, "tenant": "chat", "priority": 0,
     "arrival_s": 0.02, "deadline_ms": 60000},
]  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policies")
    lines = [json.dumps({"ignore_eos": True} | line) for line in LINES]
    (folder / "w.jsonl").write_text("\n".join(lines), "utf-8")
    arguments = ["--workload", str(folder / "w.jsonl"), "--model", "tiny", "--slots", "1"]
    assert cli.main(["policies", *arguments, "--json", str(folder / "out.json")]) == 0
    return json.loads((folder / "out.json").read_text("utf-8"))


def test_there_is_a_row_for_each_class_under_each_policy(found):
    rows = [(row["policy"], row["preemption"], row["class"]) for row in found["rows"]]
    runs = [("fcfs", "-"), ("priority", "recompute"), ("priority", "swap"), ("fair", "-")]
    runs.append(("deadline", "-"))
    assert rows == [(*run, name) for run in runs for name in ("chat", "batch")]


def test_only_priority_preempts_and_only_the_less_urgent(found):
    for row in found["rows"]:
        if row["policy"] != "priority" or row["class"] == "chat":
            assert row["preemptions"] == 0
        assert row["swaps"] <= row["preemptions"]
    assert all(total["differs"] == [] for total in found["totals"])


def test_the_simulator_tells_a_time_for_each_run(found):
    for total in found["totals"]:
        assert total["simulated_s"] > 0 and total["simulated_e2e_mean_s"] > 0
        assert total["seconds"] > 0


def test_a_timeline_is_drawn_for_each_run(tmp_path):
    lines = [json.dumps({"ignore_eos": True} | line) for line in LINES]
    (tmp_path / "w.jsonl").write_text("\n".join(lines), "utf-8")
    arguments = ["--workload", str(tmp_path / "w.jsonl"), "--model", "tiny", "--slots", "1"]
    assert cli.main(["policies", *arguments, "--plot", str(tmp_path / "t.png")]) == 0
    names = ("fcfs", "priority-recompute", "priority-swap", "fair", "deadline")
    for name in names:
        assert (tmp_path / f"t-{name}.png").read_bytes().startswith(b"\x89PNG")


def test_whoever_came_too_late_is_counted_against_all():
    asked = [
        workload.WorkloadRequest("a", 2, "x", deadline_ms=1000, tenant="t"),
        workload.WorkloadRequest("b", 2, "x", deadline_ms=1000, tenant="t"),
        workload.WorkloadRequest("c", 2, "x", tenant="t"),
        workload.WorkloadRequest("d", 2, "x", deadline_ms=1000, tenant="t"),
    ]
    times = {"a": [0.5, 1.0], "b": [0.5, 1.1], "c": [3.0, 4.0], "d": []}
    run = Run(dict.fromkeys("abcd", 0.0), times, {n: [7] * len(t) for n, t in times.items()})
    run.late["d"] = "too late"
    assert [policies.is_on_time(one, run) for one in asked] == [True, False, True, False]


def test_the_built_in_classes_are_what_they_say():
    asked = workload.three_classes(seed=4)
    assert asked == workload.three_classes(seed=4) != workload.three_classes(seed=5)
    assert {(r.tenant, r.priority) for r in asked} == {("chat", 0), ("agent", 1), ("batch", 2)}
    assert [r.arrival_s for r in asked] == sorted(r.arrival_s for r in asked)
    assert all(r.arrival_s == 0 for r in asked if r.tenant == "batch")
