"""`bench router`: its workload, the simulated table, and one short run of all parts."""

import json

import pytest

from labkit.measure.bench import cli, router_simulated
from labkit.measure.bench.router_workload import Shape, arrivals, asked

SMALL = Shape(groups=4, prefix=64, suffix=16, output=4, requests=200)


def test_prompts_of_a_group_begin_alike_and_end_differently():
    requests = asked(SMALL, 10.0, 0)
    starts = {one.tenant: one.prompt_token_ids[:64] for one in requests}
    assert len(starts) == len({*starts.values()}) == 4
    assert all(one.prompt_token_ids[:64] == starts[one.tenant] for one in requests)
    assert len({one.prompt_token_ids for one in requests}) == 200
    assert requests == asked(SMALL, 10.0, 0) != asked(SMALL, 10.0, 1)
    assert [one.time for one in arrivals(requests)] == [one.arrival_s for one in requests]


def test_a_replica_holds_its_share_of_the_beginnings():
    assert SMALL.blocks(2) - Shape(0, 64, 16, 4, 200).blocks(2) == 2 * 64 // 16
    assert SMALL.wider(3).blocks(6) == SMALL.blocks(2)
    assert SMALL.longer(2).prompt == 2 * SMALL.prompt
    assert SMALL.most_cached == pytest.approx(196 / 200 * 64 / 80)


def test_routers_that_know_who_belongs_together_hit_more_on_any_number_of_replicas():
    rates = {
        policy: router_simulated.row(policy, 8, SMALL, 2, 0.5, 0)["hit_rate"]
        for policy in ("round-robin", "session", "prefix")
    }
    best = SMALL.wider(4).most_cached
    assert rates["round-robin"] < 0.9 * rates["prefix"]
    assert best >= rates["prefix"] > 0.9 * best and best >= rates["session"] > 0.9 * best


@pytest.mark.parametrize("line, told", [
    ("--policies fastest", "policy 'fastest' is not known"),
    ("--simulated 63", "--simulated 63 is odd"),
    ("--device H100", "is no card with a size"),
])  # fmt: skip
def test_what_cannot_be_is_refused(line, told, capsys):
    with pytest.raises(SystemExit):
        cli.parse(["router", *line.split()])
    assert told in capsys.readouterr().err


def test_a_short_run_of_all_parts(tmp_path, capsys):
    file = tmp_path / "router.json"
    line = "router --model tiny --policies prefix --requests 24 --groups 2 --prefix-tokens 64 "
    line += f"--simulated 4 --overhead-requests 4 --streams 8 --json {file}"
    status = cli.main(line.split())
    said = capsys.readouterr()
    assert status == 0, said.err
    found = json.loads(file.read_text("utf-8"))
    assert [row["where"] for row in found["policies"]] == ["live, 2", "simulated, 4"]
    assert [row["failed"] for row in found["policies"]] == [0, 0]
    # At most 4 run at once on each of two replicas: of 24 at least 16 come after one like them.
    assert [row for row in found["policies"] if not 0.3 < row["hit_rate"] < 1] == []
    assert found["overhead"][0]["requests"] == 4
    assert [row["streams"] for row in found["streams"]] == [8, 8]
    assert "hit rate" in said.out and "at p50" in said.out
