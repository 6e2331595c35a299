"""`bench capacity` against a server that answers at once; and what can't be asked."""

import io
import json
from argparse import Namespace

import pytest
from fake_openai import serving

from labkit.measure.bench import capacity, cli
from labkit.measure.bench.answers import Answer, Usage
from labkit.measure.bench.report import Report
from labkit.measure.bench.serve_rows import Outcome
from labkit.measure.capacity import Capacity
from labkit.measure.simulate import options
from labkit.measure.slo import SLO
from labkit.measure.slo_options import slo_of
from labkit.measure.workload import WorkloadRequest


@pytest.fixture(scope="module")
def fake():
    with serving() as found:
        yield found


def searched(folder, fake, *options):
    file = folder / "out.json"
    line = ["capacity", "--url", f"it={fake.url}", "--requests", "6", *options, "--json", str(file)]
    assert cli.main(line) == 0
    return json.loads(file.read_text("utf-8"))


def test_a_server_that_keeps_up_has_the_highest_rate(fake, tmp_path, capsys):
    line = ("--slo-e2e-ms", "60000", "--rates", "200,300", "--runs", "2", "--price", "1")
    found = searched(tmp_path, fake, *line)
    assert found["capacity"] == [{"server": "it", "rate": 300.0, "fails_at": None, "share": 0.99}]
    assert [row["rate"] for row in found["trials"]] == [200.0, 300.0, 300.0]  # the edge once more
    row = found["trials"][0]
    assert (row["requests"], row["met"], row["failed"]) == (6, 6, 0) and row["is_met"]
    assert row["cost"] == pytest.approx(row["seconds"] / 3600 / row["good_tokens"] * 1e6)
    notes = " ".join(found["notes"])
    assert "12 of 12 requests met the SLO" in notes and "(--rates)" in notes
    assert "12 requests don't prove 99.0%" in notes  # few requests leave much to chance
    assert "USD for a million good tokens there" in capsys.readouterr().out


def test_a_limit_that_nobody_meets_leaves_no_capacity(fake, tmp_path):
    found = searched(tmp_path, fake, "--slo-ttft-ms", "0.000001", "--rates", "500,900")
    assert found["capacity"][0]["rate"] == 0.0 and len(found["trials"]) == 1
    assert "no capacity: at 500 requests/s the SLO is missed" in found["notes"][0]
    assert found["trials"][0]["cost"] is None


def test_each_trial_has_other_arrivals_and_another_salt(fake, tmp_path):
    fake.bodies.clear()
    searched(tmp_path, fake, "--slo-e2e-ms", "60000", "--rates", "300,600", "--runs", "1")
    assert len({body.get("cache_salt") for body in fake.asked}) == 2


def test_a_failed_request_meets_nothing_and_its_tokens_are_not_good():
    asked = [WorkloadRequest(f"r{i}", 4, prompt="x", arrival_s=0.0) for i in range(2)]
    good = Answer(0.0, sent=0.0, chunk_times=[1.0, 2.0], usage=Usage(1, 4), done=True)
    good.finish_reason, good.finish_time = "length", 2.0
    good.close(2.0)
    bad = Answer(0.0, sent=0.0, failure="HTTP 429", end=1.0)
    row = capacity.row("s", 2.0, Outcome(asked, [good, bad], 0.0), SLO(ttft=9.0), price=3600.0)
    assert (row["met"], row["requests"], row["failed"], row["good_tokens"]) == (1, 2, 1, 4)
    assert row["cost"] == pytest.approx(2.0 / 4 * 1e6)


@pytest.mark.parametrize(
    "line, told",
    [
        ([], "give --slo PRESET"),
        (["--slo", "gpt-j"], "invalid choice: 'gpt-j'"),
        (["--slo", "deepseek-r1", "--rates", "5"], "LOW,HIGH"),
        (["--slo", "deepseek-r1", "--rates", "5,1"], "LOW,HIGH"),
        (["--slo", "deepseek-r1", "--slo-share", "0"], "percentage"),
        (["--slo", "deepseek-r1", "--price", "-1"], "price in USD"),
        (["--slo", "deepseek-r1", "--trial-seconds", "0"], "seconds from 1"),
        (["--slo", "deepseek-r1", "--trial-seconds", "9", "--requests", "9"], "leave one out"),
        (["--slo", "deepseek-r1", "--prompt-tokens", "9"], "go together"),
    ],
)
def test_what_cant_be_asked_is_told_in_one_line(line, told, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["capacity", *line])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and told in error and error.count("\n") == 1


def test_help_has_the_formulas_and_the_prices(capsys):
    with pytest.raises(SystemExit):
        cli.main(["capacity", "--help"])
    told = capsys.readouterr().out
    assert "Wilson" in told and "llama3.1-8b-interactive" in told and "H100  6.88 USD" in told


def test_bench_serve_takes_a_preset_too():
    chosen = cli.parse(["serve", "--slo", "llama2-70b-interactive", "--slo-ttft-ms", "900"])
    assert slo_of(chosen) == SLO(ttft=0.9, tpot=0.04)  # what is given goes over it
    assert not slo_of(cli.parse(["serve"]))


def test_a_limit_is_of_the_same_thing_wherever_it_is_given():
    line = ["--slo-ttft-ms", "9", "--slo-itl-ms", "50", "--slo-tpot-ms", "40", "--slo-e2e-ms", "90"]
    simulated = options.parse(["--synthetic", "conv", *line], "simulate")
    for found in (cli.parse(["serve", *line]), cli.parse(["capacity", *line]), simulated):
        assert slo_of(found) == SLO(ttft=0.009, itl=0.05, tpot=0.04, e2e=0.09)


@pytest.mark.parametrize("name", ["ttft", "itl", "tpot", "e2e"])
def test_every_limit_is_one_that_a_capacity_can_be_about(name):
    assert slo_of(cli.parse(["capacity", f"--slo-{name}-ms", "50"])) == SLO(**{name: 0.05})


def test_the_cost_at_the_edge_is_of_all_trials_there():
    """Not the mean of their costs, and with what was paid for while no token was good."""
    rows = [
        {"rate": 2.0, "good_tokens": 1000, "seconds": 10.0, "cost": 10.0},
        {"rate": 2.0, "good_tokens": 0, "seconds": 10.0, "cost": None},
        {"rate": 2.0, "good_tokens": 3000, "seconds": 20.0, "cost": 6.7},
        {"rate": 4.0, "good_tokens": 9000, "seconds": 20.0, "cost": 2.2},
    ]

    def notes(price):
        trials = Namespace(
            endpoint=Namespace(name="s"), rows=rows, counts={2.0: [9, 10]},
            options=Namespace(price=price),
        )  # fmt: skip
        report = Report("capacity", io.StringIO())
        capacity.tell_capacity(report, trials, Capacity(2.0, 4.0, ()), 0.9)
        return report.content["notes"]

    assert "s: 10.000 USD for a million good tokens there" in notes(3.6)
    assert "USD" not in " ".join(notes(None))
