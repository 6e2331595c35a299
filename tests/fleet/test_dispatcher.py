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
        probes = {one: sum(t.is_probe for t in trips if t.backend is one)
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
            if action == "answer":
                dispatcher.answered(trip)
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


STEPS = st.tuples(
    st.sampled_from(["begin", "answer", "lose", "end"]), st.integers(0, 7),
    st.sampled_from([0.0, 0.5, 1.0, 40.0]),
)  # fmt: skip


@given(st.lists(STEPS, max_size=30))
def test_while_a_breaker_is_open_only_its_probe_is_heard_however_others_end(history):
    clock = Clock()
    dispatcher = fleet("round-robin", 1, clock)
    breaker = dispatcher.backends[0].breaker
    trips = [dispatcher.begin(Asked()) for _ in range(8)]
    for trip in trips[5:]:
        lose(dispatcher, trip)
    trips = trips[:5]  # under way since before it opened
    probe = None
    for action, number, passed in history:
        clock.now += passed
        if action == "begin":
            is_free = probe is None and breaker.state(clock.now) == "half-open"
            if breaker.is_open and not is_free:
                with pytest.raises(NoReplica):
                    dispatcher.begin(Asked())
                continue
            trips.append(dispatcher.begin(Asked()))
            probe = trips[-1] if is_free else None
            continue
        if not trips:
            continue
        trip = trips[number % len(trips)]
        was_open, before = breaker.is_open, dict(vars(breaker))
        if action == "answer":
            dispatcher.answered(trip)
        elif action == "lose":
            dispatcher.lost(trip)
        if action != "answer":
            dispatcher.ended(trip)
            trips.remove(trip)
        if was_open and trip is not probe:
            assert vars(breaker) == before
        elif trip is probe:
            assert breaker.is_open == (action != "answer") and not breaker.is_probing
            probe = None
    for trip in trips:
        dispatcher.ended(trip)
    clock.now += breaker.longest_s
    dispatcher.begin(Asked())  # nothing is stuck


def lose(dispatcher, trip):
    dispatcher.lost(trip)
    dispatcher.ended(trip)


def test_an_old_requests_end_is_not_taken_for_the_probes():
    clock = Clock()
    dispatcher = fleet("round-robin", 1, clock)
    breaker = dispatcher.backends[0].breaker
    old, *others = [dispatcher.begin(Asked()) for _ in range(4)]
    for trip in others:
        lose(dispatcher, trip)
    clock.now = 1.0
    probe = dispatcher.begin(Asked())
    lose(dispatcher, old)
    assert breaker.is_probing and breaker.cooldown_s == 1.0
    clock.now = 30.0
    with pytest.raises(NoReplica):  # the probe is still under way
        dispatcher.begin(Asked())
    dispatcher.ended(probe)
    assert dispatcher.begin(Asked()).is_probe


def test_a_replica_that_breaks_off_all_it_begins_is_left_out_and_one_that_ends_some_is_not():
    dispatcher = fleet("round-robin", 1, Clock())
    for number in range(12):
        trip = dispatcher.begin(Asked())
        dispatcher.answered(trip)
        if number % 3 < 2:
            dispatcher.lost(trip)
        dispatcher.ended(trip)
    for _ in range(3):
        trip = dispatcher.begin(Asked())
        dispatcher.answered(trip)
        lose(dispatcher, trip)
    with pytest.raises(NoReplica):
        dispatcher.begin(Asked())


def test_after_the_head_of_a_probes_answer_others_may_come_and_the_first_loss_opens_again():
    clock = Clock()
    dispatcher = fleet("round-robin", 1, clock)
    breaker = dispatcher.backends[0].breaker
    for trip in [dispatcher.begin(Asked()) for _ in range(3)]:
        lose(dispatcher, trip)
    for cooldown in (1.0, 2.0, 4.0):  # it doubles, though each probe's answer began
        assert breaker.cooldown_s == cooldown
        clock.now += cooldown
        probe = dispatcher.begin(Asked())
        dispatcher.answered(probe)
        beside = dispatcher.begin(Asked())  # nobody waits for the probe's end
        assert not beside.is_probe
        lose(dispatcher, probe)
        assert breaker.is_open
        dispatcher.ended(beside)
    clock.now += 8.0
    probe = dispatcher.begin(Asked())
    dispatcher.answered(probe)
    dispatcher.ended(probe)
    assert not breaker.is_open and (breaker.num_failed, breaker.cooldown_s) == (0, 1.0)


def test_another_could_have_it_only_if_it_is_up_has_the_model_and_was_not_tried():
    clock = Clock()
    dispatcher = fleet("round-robin", 2, clock)
    first, second = dispatcher.backends
    request = Asked(body=Body(model="m"))
    assert dispatcher.has_other(request, [first])
    assert not dispatcher.has_other(request, [first, second])
    second.models = frozenset({"another"})
    assert not dispatcher.has_other(request, [first])
    second.models, second.is_up = frozenset({"m"}), False
    assert not dispatcher.has_other(request, [first])
    second.is_up = True
    for _ in range(3):
        second.breaker.failed(clock.now)
    assert not dispatcher.has_other(request, [first])
    clock.now = 1.0
    assert second.may_get("m", clock.now)  # one of all who ask, as a probe: no place for many
    assert not dispatcher.has_other(request, [first]) and not second.breaker.is_probing
    second.breaker.succeeded(clock.now)
    assert dispatcher.has_other(request, [first])


def test_who_was_a_probe_once_is_none_when_the_breaker_opens_again():
    clock = Clock()
    dispatcher = fleet("round-robin", 1, clock)
    breaker, probes = dispatcher.backends[0].breaker, []
    for now in (1.0, 3.0):
        for trip in [dispatcher.begin(Asked()) for _ in range(3)]:
            lose(dispatcher, trip)
        clock.now = now
        probes.append(dispatcher.begin(Asked()))
        if now == 1.0:
            dispatcher.answered(probes[0])  # its stream goes on
    lose(dispatcher, probes[0])
    assert breaker.is_probing and breaker.opened_at == 1.0
    dispatcher.answered(probes[1])
    assert not breaker.is_open


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
    dispatcher.answered(trip)
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
