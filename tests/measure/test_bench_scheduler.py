"""`bench scheduler`: the house is full as it says, and stays so while it is timed."""

import json

from labkit.measure.bench import cli, scheduler


def test_a_row_for_every_pair_and_the_growth(tmp_path):
    file = tmp_path / "s.json"
    line = ["--waiting", "10,100", "--running", "1,5", "--steps", "20", "--seed", "3"]
    assert cli.main(["scheduler", *line, "--json", str(file)]) == 0
    done = json.loads(file.read_text(encoding="utf-8"))
    pairs = [(row["waiting"], row["running"]) for row in done["rows"]]
    assert pairs == [(10, 1), (10, 5), (100, 1), (100, 5)]
    assert done["seed"] == 3
    for row in done["rows"]:
        assert 0 < row["median_s"] <= row["p99_s"]
        assert row["per_request_s"] == row["median_s"] / row["running"]
    medians = {(row["waiting"], row["running"]): row["median_s"] for row in done["rows"]}
    assert done["growth"] == [
        {"running": n, "factor": medians[100, n] / medians[10, n]} for n in (1, 5)
    ]


def test_growth_is_told_only_where_there_is_something_to_compare(tmp_path):
    file = tmp_path / "s.json"
    line = ["--waiting", "10,50", "--running", "2", "--steps", "5", "--json", str(file)]
    assert cli.main(["scheduler", *line]) == 0
    assert "growth" not in json.loads(file.read_text(encoding="utf-8"))


def test_every_timed_step_is_one_token_for_each_running_request():
    assert len(scheduler.step_times(waiting=7, running=3, steps=40, seed=0)) == 39
    house = scheduler.full_house(waiting=7, running=3, steps=40, seed=0)
    plan = house.plan(0.0)
    assert len(plan.chunks) == len(house.running) == 3
    assert len(house.policy) == 7
