"""labkit's policies inside Ray Serve's router, and its autoscaler: decisions, without a cluster."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray", reason="Ray is not installed: pip install .[ray]")
from labkit.fleet.ray_serve.about import About  # noqa: E402
from labkit.fleet.ray_serve.routers import ByLoad, ByPolicy  # noqa: E402


class Replicas:
    """A router with replicas that are names; requests are numbered."""

    def __init__(self, policy="prefix", names="abc"):
        self.router = ByPolicy.__new__(ByPolicy)
        self.router.initialize_state(policy)
        self.there = {name: replica(name) for name in names}
        self.loop, self.number = asyncio.new_event_loop(), 0

    def ask(self, about, model=""):
        """The first choice of the router for a request, and the request."""
        self.number += 1
        pending = SimpleNamespace(
            kwargs={"about": about}, future=self.loop.create_future(),
            metadata=SimpleNamespace(
                internal_request_id=str(self.number), multiplexed_model_id=model
            ),
            routing_context=SimpleNamespace(should_backoff=False),
        )  # fmt: skip
        ranks = self.loop.run_until_complete(
            self.router.choose_replicas([*self.there.values()], pending)
        )
        assert len(ranks[0]) == 1 and {*ranks[0]}.isdisjoint(ranks[1])
        return ranks[0][0].replica_id.unique_id, pending

    def accept(self, pending, name):
        self.router.on_request_routed(pending, self.there[name].replica_id, None)

    def finish(self, pending, name):
        number = pending.metadata.internal_request_id
        self.router.on_request_completed(SimpleNamespace(unique_id=name), number)

    def load(self):
        return {one.name: one.num_requests for one in self.router.known}


def replica(name, models=()):
    identity = SimpleNamespace(unique_id=name)
    return HashableNamespace(replica_id=identity, multiplexed_model_ids={*models})


class HashableNamespace(SimpleNamespace):
    __hash__ = object.__hash__


def request(tokens=10, hashes=()):
    return About(tokens, 10, block_hashes=[*hashes])


def test_ten_that_come_at_once_are_spread_before_anybody_has_accepted():
    replicas = Replicas("least-loaded", "ab")
    for _ in range(10):
        replicas.ask(request())
    assert replicas.load() == {"a": 5, "b": 5}


def test_a_prompt_goes_where_its_beginning_went():
    replicas = Replicas("prefix")
    first, _ = replicas.ask(request(hashes=[b"1", b"2"]))
    replicas.ask(request(hashes=[b"8"]))
    assert replicas.ask(request(hashes=[b"1", b"2", b"3"]))[0] == first


def test_who_takes_it_instead_has_its_load():
    replicas = Replicas("least-loaded", "ab")
    chosen, pending = replicas.ask(request())
    other = "b" if chosen == "a" else "a"
    replicas.accept(pending, other)
    assert replicas.load() == {chosen: 0, other: 1}
    replicas.finish(pending, other)
    assert replicas.load() == {"a": 0, "b": 0}


def test_a_client_that_leaves_before_it_is_sent_leaves_no_load():
    replicas = Replicas("least-loaded")
    _, pending = replicas.ask(request())
    pending.future.cancel()
    replicas.loop.run_until_complete(asyncio.sleep(0))
    assert sum(replicas.load().values()) == 0


def test_a_replica_that_is_gone_gets_nothing():
    replicas = Replicas("round-robin", "ab")
    replicas.ask(request())
    del replicas.there["a"]
    assert {replicas.ask(request())[0] for _ in range(4)} == {"b"}
    replicas.there["c"] = replica("c")
    assert {replicas.ask(request())[0] for _ in range(4)} == {"b", "c"}


def test_who_has_the_model_in_memory_is_preferred():
    replicas = Replicas("round-robin", "ab")
    replicas.there["b"] = replica("b", ["chat"])
    assert {replicas.ask(request(), "chat")[0] for _ in range(3)} == {"b"}
    assert {replicas.ask(request(), "other")[0] for _ in range(3)} == {"a", "b"}


@given(st.lists(st.tuples(st.sampled_from(["ask", "cancel", "accept", "finish"]), st.integers(0))))
def test_after_any_history_load_is_what_is_under_way(history):
    replicas, open_ones = Replicas("least-loaded", "ab"), {}
    for what, number in history:
        if what == "ask":
            name, pending = replicas.ask(request())
            open_ones[pending.metadata.internal_request_id] = (name, pending)
        elif open_ones:
            key = sorted(open_ones)[number % len(open_ones)]
            name, pending = open_ones[key]
            if what == "accept":
                name = "ab"[number % 2]
                replicas.accept(pending, name)
                open_ones[key] = (name, pending)
                continue
            del open_ones[key]
            if what == "finish":
                replicas.finish(pending, name)
            else:
                pending.future.cancel()
                replicas.loop.run_until_complete(asyncio.sleep(0))
    expected = {name: 0 for name in replicas.load()}
    for name, _ in open_ones.values():
        expected[name] += 1
    assert replicas.load() == expected
    assert len(replicas.router.assigned) == len(open_ones)
    replicas.loop.close()


@pytest.mark.parametrize(
    ("requests", "usage", "wanted"), [(0, 0.0, 1), (5, 0.0, 2), (100, 0.0, 4), (1, 0.95, 3)]
)
def test_how_many_replicas_a_load_wants(requests, usage, wanted):
    context = SimpleNamespace(
        target_num_replicas=2, total_num_requests=float(requests),
        aggregated_metrics={"kv_usage": {"a": usage, "b": usage}},
        capacity_adjusted_min_replicas=1, capacity_adjusted_max_replicas=4,
    )  # fmt: skip
    assert ByLoad(requests_each=4)(context) == (wanted, {})
