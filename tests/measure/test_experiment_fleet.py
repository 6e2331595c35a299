"""The experiments of notebook 09: on `tiny`, with fake loaders, and on a virtual clock."""

import asyncio
import itertools
import json
import sys
from types import SimpleNamespace

import pytest

from labkit import rungs
from labkit.console import SetupError
from labkit.fleet.breaker import Breaker
from labkit.fleet.model_cache import ModelCache, ModelLoadFailed
from labkit.fleet.routing import LeastLoaded, PrefixAware, Replica, RoundRobin
from labkit.measure.experiments import fleet_hangs, fleet_models, fleet_replicas, fleet_routing
from labkit.measure.experiments.fleet_models import FirstIn, Stays, visit_in_turn
from labkit.measure.experiments.fleet_routing import (
    CountsLate,
    Forgets,
    hashes,
    prefix_heavy,
    serve,
    simulate,
)
from labkit.model import load_decoder

SIZES = {"chat": 3, "code": 3, "write": 6, "mail": 3, "tiny-1": 0, "tiny-2": 0}


def visited(first_in=False):
    ticking = iter(range(10_000))

    async def make(name):
        return name

    async def run():
        loader = Stays(SIZES.get, make, lambda: float(next(ticking)))
        cache = ModelCache(9, loader)
        if first_in:
            cache.shelf.entries = FirstIn()
        return await visit_in_turn(cache, fleet_models.ASKED, lambda value: None)

    return asyncio.run(run())


def test_what_is_used_stays_and_what_came_first_does_not():
    lru, first_in = visited(), visited(first_in=True)
    assert (lru.num_hits, first_in.num_hits) == (9, 7)
    assert (lru.num_loads, first_in.num_loads) == (7, 9)
    assert [stay.name for stay in first_in.stays].count("chat") == 3
    assert [stay.name for stay in lru.stays].count("chat") == 1
    for run in (lru, first_in):
        assert run.num_hits + run.num_loads == len(run.visits) == len(fleet_models.ASKED)
        assert all(0 <= stay.begin < stay.ready for stay in run.stays)


def test_the_shelf_never_holds_more_than_its_budget():
    for run in (visited(), visited(first_in=True)):
        for time in {stay.begin for stay in run.stays}:
            here = [s for s in run.stays if s.begin <= time and (s.end is None or time < s.end)]
            assert sum(stay.num_bytes for stay in here) <= 9


def test_real_engines_are_loaded_asked_and_unloaded():
    models = {name: ("tiny", "float32") for name in ("a", "b")}
    size = fleet_models.bytes_of("a", models)

    async def run():
        cache = ModelCache(size, fleet_models.engines("cpu", models))
        return await visit_in_turn(cache, ["a", "a", "b"])

    found = asyncio.run(run())
    assert [visit.was_ready for visit in found.visits] == [False, True, False]
    assert [stay.end is None for stay in found.stays] == [False, True]


def test_a_load_that_fails_is_told_as_such():
    async def make(name):
        raise OSError("no such file")

    async def run():
        with pytest.raises(ModelLoadFailed, match="'a' can't be loaded: no such file"):
            await ModelCache(9, Stays(lambda name: 1, make)).acquire("a")

    asyncio.run(run())


def test_a_stay_begins_with_the_load_however_long_its_size_takes_to_find():
    now = [0.0]

    def sizes(name):
        now[0] += 1.0
        return 1

    async def make(name):
        return name

    async def run():
        return await visit_in_turn(ModelCache(9, Stays(sizes, make, lambda: now[0])), ["a"], id)

    [stay] = asyncio.run(run()).stays
    assert stay.begin == 1.0  # after the estimate, before its own look at the size


def test_prompts_of_one_beginning_share_their_first_blocks():
    arrivals = prefix_heavy(20, 10.0, 2, 32, 8, 4)
    beginnings = {one.tenant: set() for one in arrivals}
    for one in arrivals:
        assert len(one.prompt_token_ids) == 40
        beginnings[one.tenant].add(one.prompt_token_ids[:32])
    assert {len(texts) for texts in beginnings.values()} == {1} and len(beginnings) == 2
    assert [one.time for one in arrivals] == sorted(one.time for one in arrivals)


def test_the_bound_keeps_the_hits_and_ends_the_line():
    runs = {
        name: simulate(name, router, num_requests=700, rate=800)
        for name, router in {
            "least": LeastLoaded(),
            "herd": PrefixAware(hashes=hashes, most_ahead=10**12),
            "bound": PrefixAware(hashes=hashes),
        }.items()
    }
    assert runs["least"].hit_rate < 0.3 < 0.6 < runs["bound"].hit_rate
    assert runs["bound"].hit_rate > runs["herd"].hit_rate - 0.05
    assert runs["bound"].ttft(99) < runs["herd"].ttft(99) / 2
    assert max(runs["bound"].counts(64)) < max(runs["herd"].counts(64)) / 2
    assert all(len(run.sent) == 700 for run in runs.values())


def test_forgotten_loads_make_a_crowd():
    kept, forgot = (
        simulate("", kind(hashes=hashes), num_requests=700, rate=800)
        for kind in (PrefixAware, Forgets)
    )
    assert max(forgot.counts(64)) > 1.5 * max(kept.counts(64))


def test_a_burst_counted_late_goes_to_one_replica():
    def burst(router):
        replicas = [Replica(f"r{i}") for i in range(4)]
        request = SimpleNamespace(prompt_token_ids=range(9), max_tokens=1)
        went = []
        for _ in range(8):
            went.append(router.choose(request, replicas))
            router.dispatched(request, replicas[went[-1]])
        return sorted(went)

    assert burst(LeastLoaded()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(set(burst(CountsLate()))) == 1


def test_real_engines_find_what_they_were_sent_before():
    tiny = load_decoder("tiny")
    arrivals = prefix_heavy(24, 200.0, 6, 160, 8, 4, seed=2, vocabulary=200, favourite=0)

    def run(router):
        engines = [rungs.make("continuous", tiny, num_blocks=40) for _ in range(2)]
        ticking = itertools.count()  # a millisecond a step
        return serve("", router, engines, arrivals, lambda: next(ticking) / 1000)

    even, warm = run(RoundRobin()), run(PrefixAware(hashes=hashes, most_ahead=10**9))
    assert even.counts(2) == [12, 12] and len(warm.sent) == 24
    assert warm.hit_rate == pytest.approx(18 * 160 / (24 * 168))  # six were computed, once each
    assert even.hit_rate < warm.hit_rate
    assert all(one.ttft > 0 for one in warm.sent)


def test_a_cold_prompt_is_timed():
    engine = rungs.make("continuous", load_decoder("tiny"), num_blocks=40)
    assert fleet_routing.cold_seconds(engine, 40) > 0
    assert not engine.has_unfinished()


def test_without_a_breaker_every_turn_of_a_hanging_replica_is_a_time_out():
    begin, end = fleet_hangs.HANGS
    plain, broken = fleet_hangs.one_hangs(fleet_hangs.AlwaysClosed), fleet_hangs.one_hangs(Breaker)
    for asked in (plain, broken):
        assert all(one.answered is not None for one in asked)
        slow = [one for one in asked if len(one.tried) > 1]
        assert all(begin <= one.at < end and one.tried[0] == 0 for one in slow)
        assert {round(one.waited_s, 6) for one in slow} == {2.1}
    assert sum(len(one.tried) > 1 for one in plain) == 20
    assert sum(len(one.tried) > 1 for one in broken) == 8
    assert any(one.tried == [0] for one in broken if one.at > end)  # it is taken back


def test_what_is_stored_says_so_and_when(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_replicas, "FIGURES", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"ray-\*\.json; run python3"):
        fleet_replicas.stored("ray")
    for day in ("2026-11-29", "2026-11-30"):
        (tmp_path / f"ray-{day}.json").write_text(json.dumps({"date": day}))
    assert fleet_replicas.stored("ray") == {"date": "2026-11-30", "stored": True}


def test_replicas_that_do_not_start_leave_the_stored_result_and_the_reason(monkeypatch):
    def fails():
        raise RuntimeError("the replicas don't start")

    monkeypatch.setattr(fleet_replicas.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(fleet_replicas, "measure", fails)
    found = fleet_replicas.on_ray()
    assert found["stored"] and found["why"] == "the replicas don't start"


def test_without_ray_the_stored_result_is_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(fleet_replicas.importlib.util, "find_spec", lambda name: None)
    found = fleet_replicas.on_ray()
    assert found["stored"] and found["date"] and found["command"]
    assert "on_ray(install=True) installs it" in found["why"]
    assert {how for ends in found["killed"].values() for how in ends} == {"whole", "error event"}
    assert len({replica for _, replica in found["went"]}) == 2


def test_ray_is_installed_where_that_is_asked_for(monkeypatch):
    asked = []

    def ensure(extra, command):
        asked.append((extra, command))
        raise SetupError("packages can't be installed", "no network", command)

    monkeypatch.setattr(fleet_replicas.ray_wheel, "refuse", lambda: None)
    monkeypatch.setattr(fleet_replicas.bootstrap, "ensure_environment", ensure)
    found = fleet_replicas.on_ray(install=True)
    assert asked == [("ray", "serve --replicas 2")]
    assert found["stored"] and "no network" in found["why"]
