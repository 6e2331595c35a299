"""Who gets a request: properties under random histories of requests, losses, health and time."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.fleet.breaker import Breaker
from labkit.fleet.pools import Pools
from labkit.fleet.router.asked import Asked, Body
from labkit.fleet.router.backends import Backend, Dispatcher, UnknownModel
from labkit.fleet.routing import ROUTERS, NoReplica, Replica

POLICIES = {**ROUTERS, "pools": Pools}


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def fleet(policy, count, clock):
    backends = [
        Backend(f"http://{i}", Replica(f"r{i}", pool=("shared", "dedicated")[i % 2]), Breaker())
        for i in range(count)
    ]
    return Dispatcher(backends, POLICIES[policy](), clock)


def asked(data):
    size = data.draw(st.integers(0, 400))
    body = Body(
        prompt=b'"' + b"ab" * size + b'"', max_tokens=data.draw(st.integers(0, 50)),
        user=data.draw(st.sampled_from(["", "x", "y"])), priority=data.draw(st.integers(-1, 2)),
    )  # fmt: skip
    return Asked(body=body, session=body.user)


def may_be_asked(backend, now, tried, probes):
    state = backend.breaker.state(now)
    fine = state == "closed" or state == "half-open" and not probes[backend]
    return backend.is_up and fine and backend not in tried


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=40)
@given(data=st.data())
def test_loads_are_those_of_open_trips_and_nobody_is_asked_who_may_not_be(policy, data):
    clock = Clock()
    dispatcher = fleet(policy, data.draw(st.integers(1, 5)), clock)
    backends, trips = dispatcher.backends, []
    actions = ["begin"] * 3 + ["answer", "lose", "end", "end", "health", "time"]
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(actions))
        probes = {one: sum(t.is_probe and not t.is_judged for t in trips if t.backend is one)
                  for one in backends}  # fmt: skip
        assert max(probes.values()) <= 1
        if action == "begin":
            tried = data.draw(st.lists(st.sampled_from(backends), max_size=2))
            free = [one for one in backends if may_be_asked(one, clock.now, tried, probes)]
            if free:
                trips.append(dispatcher.begin(asked(data), tried))
                assert trips[-1].backend in free
            else:
                with pytest.raises(NoReplica):
                    dispatcher.begin(asked(data), tried)
        elif action == "health":
            data.draw(st.sampled_from(backends)).is_up = data.draw(st.booleans())
        elif action == "time":
            clock.now += data.draw(st.sampled_from([0.1, 1.0, 40.0]))
        elif trips:
            trip = trips[data.draw(st.integers(0, len(trips) - 1))]
            if action == "answer" and not trip.is_judged:
                dispatcher.answered(trip, data.draw(st.sampled_from([200, 429, 500, 503])))
            elif action == "lose":
                dispatcher.lost(trip)
            dispatcher.ended(trip)
            dispatcher.ended(trip)  # changes nothing
            trips.remove(trip)
        for one in backends:
            own = [trip for trip in trips if trip.backend is one]
            assert one.replica.num_requests == len(own)
            tokens = sum(len(t.asked.prompt_token_ids) + t.asked.max_tokens for t in own)
            assert one.replica.num_tokens == tokens
    for trip in trips:
        dispatcher.ended(trip)
    assert all(one.replica.load == (0, 0) for one in backends)


def test_a_probe_whose_client_leaves_leaves_the_way_free_for_the_next():
    clock = Clock()
    dispatcher = fleet("round-robin", 1, clock)
    for _ in range(3):
        trip = dispatcher.begin(Asked())
        dispatcher.lost(trip)
        dispatcher.ended(trip)
    with pytest.raises(NoReplica):
        dispatcher.begin(Asked())
    clock.now = 1.0
    dispatcher.ended(dispatcher.begin(Asked()))
    trip = dispatcher.begin(Asked())
    assert trip.is_probe
    dispatcher.answered(trip, 200)
    dispatcher.ended(trip)
    assert not dispatcher.begin(Asked()).is_probe


def test_a_client_that_leaves_a_closed_breaker_frees_nobody_elses_probe():
    clock = Clock()
    dispatcher = fleet("round-robin", 1, clock)
    old = dispatcher.begin(Asked())
    for _ in range(3):
        trip = dispatcher.begin(Asked())
        dispatcher.lost(trip)
        dispatcher.ended(trip)
    clock.now = 1.0
    assert dispatcher.begin(Asked()).is_probe
    dispatcher.ended(old)
    with pytest.raises(NoReplica):
        dispatcher.begin(Asked())


def test_who_serves_the_model_is_asked_and_who_says_nothing_may_have_it():
    dispatcher = fleet("least-loaded", 3, Clock())
    models = [frozenset({"m"}), frozenset({"n"}), frozenset({"n"})]
    for backend, told in zip(dispatcher.backends, models, strict=True):
        backend.models = told
    assert {dispatcher.begin(Asked(body=Body(model="n"))).backend.name for _ in range(6)} == {
        "r1", "r2",
    }  # fmt: skip
    with pytest.raises(UnknownModel):
        dispatcher.begin(Asked(body=Body(model="o")))
    dispatcher.backends[0].models = None
    assert dispatcher.begin(Asked(body=Body(model="o"))).backend.name == "r0"


def test_requests_of_the_simulator_are_routed_too():
    request = SimpleNamespace(prompt_token_ids=[1], max_tokens=1, tenant="", priority=0)
    assert fleet("least-loaded", 2, Clock()).begin(request).backend.name == "r0"
