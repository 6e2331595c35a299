"""labkit's policies inside Ray Serve's router, and its autoscaler: decisions, without a cluster."""

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray", reason="Ray is not installed: pip install .[ray]")
from labkit.fleet.ray_serve.about import About  # noqa: E402
from labkit.fleet.ray_serve.routers import LEAST_BLOCKS, ByLoad, ByPolicy  # noqa: E402
from labkit.fleet.routing import ROUTERS  # noqa: E402


class Replicas:
    """A router with replicas that are names; requests are numbered."""

    def __init__(self, policy="prefix", names="abc", **more):
        self.router = ByPolicy.__new__(ByPolicy)
        self.router.initialize_state(policy, **more)
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
        named = [one.replica_id.unique_id for rank in ranks for one in rank]
        assert len(ranks[0]) == 1 and sorted(named) == sorted(self.there)  # each once
        self.ranks = ranks
        return ranks[0][0].replica_id.unique_id, pending

    def accept(self, pending, name):
        self.router.on_request_routed(pending, SimpleNamespace(unique_id=name), None)

    def finish(self, pending, name):
        number = pending.metadata.internal_request_id
        self.router.on_request_completed(SimpleNamespace(unique_id=name), number)

    def load(self):
        return {name: one.num_requests for name, one in self.router.known.items()}


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
    hashes = [b"%d" % number for number in range(LEAST_BLOCKS)]
    first, _ = replicas.ask(request(hashes=hashes))
    replicas.ask(request(hashes=[b"other"]))
    assert replicas.ask(request(hashes=[*hashes, b"more"]))[0] == first


def test_what_every_prompt_begins_with_draws_nobody():
    """A chat template's system prompt is a block or two: all chats on one replica otherwise."""
    replicas = Replicas("prefix", "ab")
    for number in range(10):
        replicas.ask(request(hashes=[b"system", b"question %d" % number]))
    assert replicas.load() == {"a": 5, "b": 5}


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


@pytest.mark.parametrize("policy", sorted(ROUTERS))
def test_a_hot_model_gets_a_second_replica_when_the_first_has_its_hands_full(policy):
    replicas = Replicas(policy, "abc", full=4)
    replicas.there["b"] = replica("b", ["chat"])
    asked = request(hashes=[b"1"])
    assert [replicas.ask(asked, "chat")[0] for _ in range(4)] == [*"bbbb"]
    asked = [replicas.ask(asked, "chat") for _ in range(8)]
    assert replicas.load() == {"a": 4, "b": 4, "c": 4}
    assert replicas.ask(request(), "chat")[0] == "b"  # nobody has room: no model is loaded for it
    for name, pending in asked:
        replicas.finish(pending, name)
    assert replicas.ask(request(), "other")[0] in "ac"


def test_what_the_first_choice_cannot_take_others_get_those_with_the_model_first():
    replicas = Replicas("round-robin", "abc")
    for name in "bc":
        replicas.there[name] = replica(name, ["chat"])
    replicas.ask(request(), "chat")
    first, second, third = [[one.replica_id.unique_id for one in rank] for rank in replicas.ranks]
    assert {*first, *second} == {"b", "c"} and third == ["a"]


@pytest.mark.parametrize("policy", sorted(ROUTERS))
def test_of_replicas_that_are_gone_nothing_is_remembered(policy):
    """As many come as go, so that their number alone tells nobody anything."""
    replicas = Replicas(policy, "ab")
    asked = About(10, 10, "ada", block_hashes=[b"1", b"2"])
    for number in range(20):
        name, pending = replicas.ask(asked)
        lost = sorted(replicas.there)[number % 2]
        del replicas.there[lost]
        replicas.there[f"new {number}"] = replica(f"new {number}")
        if number % 3 == 0:
            replicas.ask(request())
        replicas.accept(pending, lost if number % 4 else name)
        replicas.finish(pending, name)
    replicas.ask(request())
    assert replicas.router.known.keys() == replicas.there.keys()
    owners = getattr(replicas.router.policy, "owners", {}).values()
    assert set().union(*owners) <= replicas.there.keys()


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


@pytest.mark.parametrize("policy", ["prefix", "session", "least-loaded", "power-of-two"])
def test_the_order_in_which_ray_names_its_replicas_changes_nothing(policy):
    kept, shuffled = Replicas(policy, "abcd"), Replicas(policy, "abcd")
    for number in range(40):
        about = About(10, 10, tenant=f"t{number % 7}", block_hashes=[b"%d" % (number % 5)] * 4)
        assert kept.ask(about)[0] == shuffled.ask(about)[0]
        first, *others = shuffled.there.items()
        shuffled.there = dict([*others, first])
    for one in (kept, shuffled):
        one.loop.close()


def test_one_full_replica_asks_for_one_more_however_long_that_takes_to_start():
    wanted, seen = 1, []
    for _ in range(6):
        context = SimpleNamespace(
            target_num_replicas=wanted, total_num_requests=1.0,
            aggregated_metrics={"kv_usage": {"a": 0.95}},
            capacity_adjusted_min_replicas=1, capacity_adjusted_max_replicas=8,
        )  # fmt: skip
        wanted, _ = ByLoad(requests_each=4)(context)
        seen.append(wanted)
    assert seen[0] == 2 and max(seen) == 2


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
