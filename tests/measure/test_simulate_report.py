"""The figures of a simulation, against small cases worked out by hand; and the command."""

import json
import math
import subprocess
import sys

import pytest

from labkit.engine.policies import Fair
from labkit.engine.scheduler import Scheduler
from labkit.fleet.routing import RoundRobin
from labkit.measure.simulate import cli
from labkit.measure.simulate.cost import TICKS, CostModel
from labkit.measure.simulate.fairness import Service, bound
from labkit.measure.simulate.fleet import Fleet
from labkit.measure.simulate.pool import LeanPool
from labkit.measure.simulate.records import Gaps, Records
from labkit.measure.simulate.replica import Replica
from labkit.measure.simulate.report import count_row, latency_rows, parts, replica_rows
from labkit.measure.simulate.requests import Arrival
from labkit.measure.simulate.watch import Watch
from labkit.measure.slo import SLO

A_SECOND = CostModel(fixed_s=1.0)


def simulate(arrivals, num_blocks=10, **limits):
    """One replica with blocks of 4 tokens, a step a second."""
    pool = LeanPool(num_blocks, 4)
    watch = Watch(pool, A_SECOND, Service())
    fleet = Fleet([Replica(Scheduler(pool, **limits), A_SECOND, watch)], RoundRobin(), Records())
    fleet.run(arrivals)
    return fleet


def test_latency_by_hand():
    # a: steps at 0..4, tokens at 1, 2, 3, 4. b waits for its slot: steps 4..6, tokens at 5, 6.
    fleet = simulate([Arrival(0, 3, 4), Arrival(0.5, 5, 2)], max_num_seqs=1)
    group = parts(fleet.records)["all"]
    assert list(group.queue) == [0, 3.5]
    assert list(group.ttft) == [1, 4.5]
    assert list(group.e2e) == [4, 5.5]
    assert list(group.tpot) == [1, 1]
    assert sum(group.gaps.counts.values()) == 4
    rows = {row["what"]: row for row in latency_rows("all", group)}
    assert (rows["TTFT"]["p50_s"], rows["TTFT"]["p99_s"]) == (1, 4.5)
    assert rows["ITL"]["p99_s"] == pytest.approx(1, rel=0.01)
    assert fleet.records.seconds == 6


def test_one_token_has_no_tpot():
    group = parts(simulate([Arrival(0, 3, 1)]).records)["all"]
    assert math.isnan(group.tpot[0])
    assert latency_rows("all", group)[3]["p50_s"] is None


def test_a_gap_that_a_preemption_makes_counts():
    # 3 blocks: the first to need a third one takes it from the other, which begins again.
    fleet = simulate([Arrival(0, 4, 6), Arrival(0, 4, 6)], num_blocks=3)
    group = parts(fleet.records)["all"]
    row = count_row("all", group, SLO(itl=1.5), fleet.records.seconds)
    assert (row["num_recomputed"], row["num_swapped"]) == (1, 0)
    assert row["slo_met"] == 0.5
    assert max(group.longest_gap) > 1.5 and min(group.longest_gap) == 1


def test_goodput_counts_who_met_every_limit():
    fleet = simulate([Arrival(0, 3, 4), Arrival(0.5, 5, 2)], max_num_seqs=1)
    group = parts(fleet.records)["all"]
    met = {
        SLO(ttft=1): 1, SLO(ttft=4.5): 2, SLO(e2e=4): 1, SLO(ttft=1, e2e=3): 0,
        SLO(tpot=0.9): 0, SLO(itl=1.0): 2,
    }  # fmt: skip
    for slo, count in met.items():
        row = count_row("all", group, slo, 6.0)
        assert (row["slo_met"], row["goodput"]) == (count / 2, count / 6), slo
    assert count_row("all", group, SLO(), 6.0)["goodput"] is None


def test_the_late_and_the_refused_are_counted_apart():
    arrivals = [Arrival(0, 4, 9), Arrival(0, 4, 9, deadline=3.5), Arrival(0, 50, 1)]
    group = parts(simulate(arrivals).records)["all"]
    assert (len(group.e2e), group.num_late, group.num_failed) == (1, 1, 1)


def test_classes_and_tenants_have_rows_of_their_own():
    arrivals = [Arrival(0, 4, 2, 0, "x"), Arrival(0, 4, 2, 1, "x"), Arrival(0, 4, 2, 1, "")]
    found = parts(simulate(arrivals).records)
    assert {who: len(group.e2e) for who, group in found.items()} == {
        "all": 3, "priority 0": 1, "priority 1": 2, "tenant -": 1, "tenant x": 2,
    }  # fmt: skip


def test_use_of_blocks_by_hand():
    # 1 block in steps 1 and 2 (4 and 5 tokens: 1 and 2 blocks), nothing for a second, once more.
    fleet = simulate([Arrival(0, 4, 2), Arrival(3, 4, 1)])
    rows = {row["what"]: row["mean"] for row in replica_rows(fleet, 4 * TICKS)}
    assert rows["KV cache in use, mean"] == (1 + 2 + 1) / 10 / 4
    assert rows["KV cache in use, peak"] == 0.2
    assert rows["time spent computing"] == 0.75


def test_percentiles_of_gaps_are_as_exact_as_said():
    gaps = Gaps()
    for count, size in [(50, 10**9), (49, 3 * 10**9), (1, 7 * 10**12)]:
        gaps.add(size, count)
    assert gaps.percentile(50) == pytest.approx(0.001, rel=0.006)
    assert gaps.percentile(99) == pytest.approx(0.003, rel=0.006)
    assert gaps.percentile(100) == pytest.approx(7, rel=0.006)
    assert Gaps().percentile(50) is None


def test_service_is_compared_only_while_both_wait():
    service = Service()
    service.serve("a", 100, 0)  # nobody else is there
    service.look()
    service.waits("a", 1)
    service.waits("b", 1)
    service.look()
    service.serve("b", 10, 5)  # 20 more
    service.look()
    service.serve("a", 0, 15)  # 30 more
    service.look()
    assert service.largest == 30
    service.waits("b", -1)
    service.look()
    service.serve("a", 1000, 0)
    service.look()
    assert service.largest == 30
    assert bound(longest_prompt=100, kv_tokens=40) == 200
    assert bound(longest_prompt=10, kv_tokens=40) == 160


@pytest.mark.parametrize("policy", ["fcfs", "fair"])
def test_the_fair_policy_stays_within_its_bound_where_fcfs_does_not(policy):
    greedy = [Arrival(0, 8, 8, tenant="greedy") for _ in range(60)]
    modest = [Arrival(0.1, 8, 8, tenant="modest") for _ in range(60)]
    kind = {"policy": Fair()} if policy == "fair" else {}
    fleet = simulate([*greedy, *modest], num_blocks=8, max_num_seqs=2, **kind)
    largest = fleet.replicas[0].watch.service.largest
    assert (largest <= bound(8, 32)) == (policy == "fair")


WORKLOAD = [
    {"id": "a", "prompt_token_ids": [1] * 40, "max_tokens": 8, "tenant": "x"},
    {"id": "b", "prompt": "Hello there, you", "max_tokens": 4, "priority": 1, "tenant": "y"},
    {"id": "c", "prompt_token_ids": [1] * 40, "max_tokens": 5, "arrival_s": 0.01, "tenant": "x"},
]


@pytest.fixture
def workload(tmp_path):
    file = tmp_path / "w.jsonl"
    file.write_text("\n".join(map(json.dumps, WORKLOAD)), encoding="utf-8")
    return str(file)


def test_the_command_says_what_it_simulates_and_writes_what_it_said(workload, tmp_path, capsys):
    file, picture = tmp_path / "s.json", tmp_path / "s.png"
    line = ["--workload", workload, "--policy", "fair", "--replicas", "2", "--router", "session"]
    line += ["--slo-ttft-ms", "1000", "--json", str(file), "--plot", str(picture), "--seed", "5"]
    assert cli.main(line) == 0
    told = capsys.readouterr().out
    first = told.splitlines()[:4]
    assert first[0].startswith("machine ") and first[1].startswith("cost      modelled: H100")
    assert first[2] == "seed      5"
    assert "1 texts counted as 28 tokens + 1 for every 4 characters" in first[3]
    done = json.loads(file.read_text(encoding="utf-8"))
    assert done["cost"]["source"] == "modelled" and done["seed"] == 5
    assert done["num_prompt_tokens"] == 40 + 32 + 40 and done["num_output_tokens"] == 17
    assert [row["who"] for row in done["counts"]] == [
        "all", "priority 0", "priority 1", "tenant x", "tenant y",
    ]  # fmt: skip
    assert done["counts"][0]["num_requests"] == 3 and done["counts"][0]["slo_met"] == 1
    assert done["fairness"]["bound"] > done["fairness"]["largest_difference"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_same_command_says_the_same(workload, capsys):
    line = ["--synthetic", "conv", "--requests", "50", "--rate", "30", "--router", "power-of-two"]
    told = [(cli.main([*line, "--replicas", "3"]), capsys.readouterr().out) for _ in range(2)]
    assert told[0] == told[1] and told[0][0] == 0


@pytest.mark.parametrize("policy", ["fcfs", "priority", "fair", "deadline"])
@pytest.mark.parametrize("preemption", ["recompute", "swap", "auto"])
def test_every_policy_and_preemption_runs(workload, policy, preemption, tmp_path):
    file = tmp_path / "s.json"
    line = ["--workload", workload, "--policy", policy, "--preemption", preemption]
    assert cli.main([*line, "--num-blocks", "5", "--json", str(file)]) == 0
    assert json.loads(file.read_text("utf-8"))["counts"][0]["num_requests"] == 3


def test_a_prefix_cache_and_its_router_need_token_ids(workload, tmp_path, capsys):
    line = ["--prefix-caching", "--router", "prefix", "--replicas", "2"]
    assert cli.main(["--workload", workload, *line]) == 1
    assert "1 prompts as text" in capsys.readouterr().err
    file = tmp_path / "ids.jsonl"
    file.write_text("\n".join(json.dumps(WORKLOAD[i]) for i in (0, 2)), encoding="utf-8")
    assert cli.main(["--workload", str(file), *line]) == 0


def test_a_trace_at_another_rate_with_many_requests_is_drawn_as_counts(tmp_path, capsys):
    file = tmp_path / "t.csv"
    rows = [f"2023-11-16 18:17:{n % 60:02},{100 + n},5" for n in range(60)]
    rows += ["2023-11-16 18:18:01,9,5"]
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(rows), "utf-8")
    line = ["--trace", str(file), "--rate", "100", "--plot", str(tmp_path / "t.svg")]
    assert cli.main(line) == 0
    assert "61 of t.csv, at 100 a second" in capsys.readouterr().out
    assert b"<svg" in (tmp_path / "t.svg").read_bytes()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ([], "one of the arguments --trace --workload --synthetic is required"),
        (["--synthetic", "chat"], "invalid choice: 'chat'"),
        (["--trace", "none.csv"], "there is no file 'none.csv'"),
        (["--synthetic", "conv", "--rate", "0"], "'0' is no number above 0"),
        (["--synthetic", "conv", "--rate", "nan"], "'nan' is no number above 0"),
        (["--synthetic", "conv", "--replicas", "0"], "'0' is no whole number from 1"),
        (["--synthetic", "conv", "--host-blocks", "9"], "--host-blocks is of --preemption swap"),
        (["--synthetic", "conv", "--model", "tiny"], "--model and --dtype are of --measure"),
        (["--synthetic", "conv", "--router", "prefix"], "prefixes need token ids"),
        (["--synthetic", "conv", "--measure", "--model-params", "9"], "--model-params is of a"),
        (["--synthetic", "conv", "--measure", "--card", "L4"], "not allowed with argument"),
    ],
)
def test_options_are_refused_in_one_line_before_anything_runs(line, told, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(line)
    said = capsys.readouterr()
    assert ended.value.code == 2 and told in said.err and said.err.count("\n") == 1
    assert said.out == ""


def test_what_fails_later_is_one_line_too(tmp_path, capsys):
    file = tmp_path / "cost.json"
    file.write_text('{"fixed_s": 0.01, "source": "measured"}', encoding="utf-8")
    line = ["--synthetic", "conv", "--cost", str(file), "--num-blocks", "500"]
    assert cli.main([*line, "--preemption", "swap"]) == 1
    assert "per_swapped_block_s is 0" in capsys.readouterr().err
    assert cli.main([*line, "--requests", "20"]) == 0
    assert "cost      measured: of no stated origin" in capsys.readouterr().out


def test_a_cost_model_is_measured_on_this_machine(capsys):
    line = ["--synthetic", "code", "--requests", "5", "--measure", "--model", "tiny"]
    assert cli.main(line) == 0
    assert "cost      measured: tiny in float32" in capsys.readouterr().out


def test_help_teaches_with_examples(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0 and told.count("python3 -m labkit simulate --") == 6


def test_a_simulation_loads_no_torch():
    code = (
        "import sys; from labkit.measure.simulate import cli; "
        "status = cli.main(['--synthetic', 'conv', '--requests', '9']); "
        "sys.exit(status or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
