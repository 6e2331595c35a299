"""What `route` can be told: replicas with names and pools; contradictions in one line."""

from dataclasses import fields

import pytest

from labkit import commands, environment
from labkit.fleet import pools
from labkit.fleet.router import options as route_options
from labkit.fleet.router import route
from labkit.fleet.router.backends import Timeouts
from labkit.fleet.routing import LeastLoaded, PrefixAware

A, B = "http://127.0.0.1:1", "http://b.example:2/api/"


def test_a_replica_has_the_name_that_it_is_given_else_its_address():
    options = route_options.parse(["--backend", f"big={A}", "--backend", B])
    assert [one.name for one in options.targets] == ["big", "b.example:2"]
    assert [one.url for one in options.targets] == [A, "http://b.example:2/api"]
    assert isinstance(route.policy_of(options), LeastLoaded)


def test_two_pools_are_routed_by_their_own_policy():
    options = route_options.parse(["--dedicated", A, "--shared", B, "--urgent-above", "7"])
    assert {one.name: one.pool for one in options.targets} == {
        "127.0.0.1:1": "dedicated", "b.example:2": "shared",
    }  # fmt: skip
    policy = route.policy_of(options)
    assert isinstance(policy, pools.Pools) and policy.spill == pools.Spill(7, 0)
    assert [one.replica.pool for one in route.backends_of(options)] == ["dedicated", "shared"]


def test_a_session_is_the_headers_else_the_users():
    options = route_options.parse(["--backend", A, "--policy", "session"])

    class Asked:
        session, tenant = "s", "t"

    assert route.policy_of(options).key(Asked) == "s"
    options = route_options.parse(["--backend", A, "--policy", "prefix"])
    assert isinstance(route.policy_of(options), PrefixAware)


def test_a_replica_has_the_timeouts_that_it_is_given_else_those_of_all():
    own = f"big={A},first-byte=180,between-bytes=9"
    given = ["--backend", own, "--backend", B, "--connect-timeout", "1"]
    first, second = route.backends_of(route_options.parse(given))
    assert first.timeouts == Timeouts(1.0, 180.0, 9.0) and (first.name, first.url) == ("big", A)
    assert second.timeouts == Timeouts(1.0)
    pools = ["--dedicated", f"{A},whole-answer=5", "--shared", B]
    first, second = route.backends_of(route_options.parse(pools))
    assert (first.timeouts, second.timeouts) == (Timeouts(whole_answer=5.0), Timeouts())
    assert first.replica.pool == "dedicated"


def test_the_timeouts_of_a_replica_are_those_that_a_router_has():
    names = {one.replace("-", "_") for one in route_options.TIMEOUTS}
    assert names == {field.name for field in fields(Timeouts)}


def test_what_the_prefix_policy_remembers_is_told_and_can_be_set(capsys):
    given = ["--backend", A, "--policy", "prefix"]
    policy = route.policy_of(route_options.parse(given))
    assert policy.most_blocks == route_options.PREFIX_BLOCKS < PrefixAware().most_blocks
    given += ["--prefix-blocks", "7"]
    assert route.policy_of(route_options.parse(given)).most_blocks == 7
    with pytest.raises(SystemExit):
        route_options.parse(["--help"])
    assert "(default: 100,000, 40 MB)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("checks_key", ["K", None])
def test_health_checks_have_the_routers_key(checks_key):
    options = route_options.parse(["--backend", A, *(["--api-key", "K"] if checks_key else [])])
    told = route.Routed(options, session=None).checks.headers
    assert told == ({"authorization": "Bearer K"} if checks_key else {})


@pytest.mark.parametrize(
    "line, told",
    [
        ("", "there is no replica; give --backend URL"),
        (f"--backend {A} --shared {B}", "--backend has no pool"),
        (f"--dedicated {A}", "give both --dedicated and --shared"),
        (f"--dedicated {A} --shared {B} --policy prefix", "--policy prefix knows no pools"),
        (f"--backend {A} --lend-below 1", "--lend-below is of pools"),
        (f"--backend {A} --backend {A}", "two replicas are called 127.0.0.1:1"),
        (f"--backend {A} --prefix-blocks 7", "--prefix-blocks is what --policy prefix"),
        (f"--backend {A},first=1", "no timeout 'first=1'; after a comma give NAME=SECONDS with"),
        (f"--backend {A},connect", "'' is no number above 0"),
        (f"--backend {A},connect=0", "'0' is no number above 0"),
        (f"--backend {A},connect=1,connect=2", "connect is given twice for a replica"),
        ("--backend localhost:1", "is no URL of a server"),
        ("--backend http://x:port", "is no URL of a server"),
        (f"--backend {A}/v1", "ends with /v1"),
        (f"--backend {A} --policy random", "invalid choice: 'random'"),
        (f"--backend {A} --health-interval 0", "is no number above 0"),
    ],
)
def test_what_cannot_be_is_one_line_with_the_remedy(line, told, capsys):
    with pytest.raises(SystemExit) as stopped:
        route_options.parse(line.split())
    said = capsys.readouterr().err
    assert stopped.value.code == 2
    assert told in said and said.startswith("FAIL ") and said.count("\n") == 1


def test_the_command_looks_at_its_options_before_anything_is_set_up(monkeypatch):
    ran = []
    monkeypatch.setattr(commands.bootstrap, "ensure_environment", lambda **o: ran.append(o))
    monkeypatch.setattr(environment, "become", lambda *told: ran.append(told) or 0)
    with pytest.raises(SystemExit):
        commands.run_route(["--backend", "x"])
    assert not ran
    assert commands.run_route(["--backend", A]) == 0
    assert ran[1] == ("labkit.fleet.router.route", ["--backend", A])
