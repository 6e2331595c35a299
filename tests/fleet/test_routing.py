"""Routers: only healthy replicas, even loads, sessions that stay, prefixes that are found."""

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.fleet.routing import (
    ROUTERS,
    LeastLoaded,
    NoReplica,
    PowerOfTwoChoices,
    PrefixAware,
    Replica,
    RoundRobin,
    Session,
)


def request(num_prompt=10, max_tokens=10, tenant="", hashes=()):
    return SimpleNamespace(
        prompt_token_ids=range(num_prompt),
        max_tokens=max_tokens,
        tenant=tenant,
        block_hashes=list(hashes),
    )


def fleet(count):
    return [Replica(f"r{i}") for i in range(count)]


def send(router, asked, replicas):
    index = router.choose(asked, replicas)
    router.dispatched(asked, replicas[index])
    return index


@pytest.mark.parametrize("name", ROUTERS)
@given(data=st.data())
def test_only_healthy_replicas_are_chosen_and_loads_are_counted_from_dispatch(name, data):
    replicas, router, under_way = fleet(data.draw(st.integers(1, 6))), ROUTERS[name](), []
    for _ in range(data.draw(st.integers(1, 25))):
        action = data.draw(st.sampled_from(["send", "send", "finish", "health", "join"]))
        if action == "send":
            hashes = [b"a", b"b", b"c"][: data.draw(st.integers(0, 3))]
            asked = request(data.draw(st.integers(1, 50)), 5, data.draw(st.text("xy", max_size=2)))
            asked.block_hashes = hashes
            if any(replica.healthy for replica in replicas):
                index = send(router, asked, replicas)
                assert replicas[index].healthy
                under_way.append((asked, index))
            else:
                with pytest.raises(NoReplica, match=f"0 of {len(replicas)} replicas"):
                    router.choose(asked, replicas)
        elif action == "finish" and under_way:
            asked, index = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            router.finished(asked, replicas[index])
        elif action == "health":
            replica = data.draw(st.sampled_from(replicas))
            replica.healthy = not replica.healthy
        elif action == "join" and len(replicas) < 8:
            replicas.append(Replica(f"r{len(replicas)}"))
    for index, replica in enumerate(replicas):
        mine = [asked for asked, where in under_way if where == index]
        assert replica.num_requests == len(mine)
        assert replica.num_tokens == sum(len(a.prompt_token_ids) + a.max_tokens for a in mine)


@pytest.mark.parametrize("name", ROUTERS)
def test_the_same_seed_chooses_the_same(name):
    def choices():
        replicas, router = fleet(5), ROUTERS[name](seed=3)
        return [send(router, request(n % 7 + 1, 4, f"t{n % 3}"), replicas) for n in range(50)]

    assert choices() == choices()


def test_round_robin_takes_turns_and_passes_over_the_lost():
    replicas, router = fleet(4), RoundRobin()
    replicas[2].healthy = False
    assert [router.choose(request(), replicas) for _ in range(6)] == [0, 1, 3, 0, 1, 3]


@given(st.lists(st.integers(1, 100), max_size=40), st.integers(1, 6))
def test_the_least_loaded_has_the_fewest_tokens(lengths, count):
    replicas, router = fleet(count), LeastLoaded()
    for number, length in enumerate(lengths):
        index = router.choose(request(length), replicas)
        assert replicas[index].load == min(replica.load for replica in replicas)
        router.dispatched(request(length), replicas[index])
        if number % 3 == 2:
            router.finished(request(length), replicas[index])


def test_of_two_choices_the_less_loaded_is_taken_and_loads_stay_close():
    replicas, router, two = fleet(100), PowerOfTwoChoices(seed=1), Counter()
    for _ in range(2000):
        send(router, request(), replicas)
    loads = [replica.num_requests for replica in replicas]
    assert max(loads) - min(loads) <= 6  # one choice at random: 25 and more
    replicas, router = fleet(2), PowerOfTwoChoices(seed=1)
    for _ in range(10):
        two[send(router, request(), replicas)] += 1
    assert two == {0: 5, 1: 5}


@given(st.integers(2, 12), st.data())
def test_a_lost_replica_moves_only_its_own_sessions(count, data):
    replicas, router = fleet(count), Session()
    keys = [f"session-{n}" for n in range(60)]
    before = {key: router.choose(request(tenant=key), replicas) for key in keys}
    lost = data.draw(st.integers(0, count - 1))
    replicas[lost].healthy = False
    during = {key: router.choose(request(tenant=key), replicas) for key in keys}
    assert all(during[key] == before[key] for key in keys if before[key] != lost)
    assert lost not in during.values()
    replicas[lost].healthy = True
    assert {key: router.choose(request(tenant=key), replicas) for key in keys} == before


def test_a_new_replica_takes_sessions_and_no_others_move():
    replicas, router = fleet(9), Session()
    keys = [f"session-{n}" for n in range(1000)]
    before = {key: router.choose(request(tenant=key), replicas) for key in keys}
    replicas.append(Replica("r9"))
    after = {key: router.choose(request(tenant=key), replicas) for key in keys}
    moved = [key for key in keys if after[key] != before[key]]
    assert {after[key] for key in moved} == {9}
    assert 60 < len(moved) < 140  # a tenth
    assert min(Counter(after.values()).values()) > 60


def test_a_request_without_a_session_goes_to_the_least_loaded():
    replicas, router = fleet(2), Session()
    assert [send(router, request(), replicas) for _ in range(4)] == [0, 1, 0, 1]


def test_the_longest_known_beginning_wins():
    replicas, router = fleet(3), PrefixAware()
    first = send(router, request(hashes=[b"a", b"b"]), replicas)
    second = send(router, request(hashes=[b"x"]), replicas)
    assert second != first
    assert router.choose(request(hashes=[b"a", b"c"]), replicas) == first
    assert router.choose(request(hashes=[b"x", b"b"]), replicas) == second
    assert router.choose(request(hashes=[b"z"]), replicas) not in (first, second)


def test_a_replica_that_is_too_far_ahead_gets_no_more_however_well_it_knows_the_prefix():
    replicas, router = fleet(2), PrefixAware(most_ahead=100)
    asked = request(30, 20, hashes=[b"a"])
    assert [send(router, asked, replicas) for _ in range(3)] == [0, 0, 0]
    assert send(router, asked, replicas) == 1
    assert router.choose(asked, replicas) in (0, 1)
    assert abs(replicas[0].num_tokens - replicas[1].num_tokens) == 100


def test_what_was_seen_longest_ago_is_forgotten_first():
    replicas, router = fleet(2), PrefixAware(most_blocks=2)
    for block_hash in (b"a", b"b", b"a", b"c"):
        router.dispatched(request(hashes=[block_hash]), replicas[0])
    assert list(router.owners) == [b"a", b"c"]


def test_of_a_prompt_its_end_is_forgotten_before_its_beginning():
    replicas, router = fleet(2), PrefixAware(most_blocks=3)
    known = [b"a", b"b", b"c"]
    router.dispatched(request(hashes=known), replicas[1])
    router.dispatched(request(hashes=[b"x"]), replicas[0])
    assert set(router.owners) == {b"x", b"a", b"b"}
    assert router.longest(request(hashes=known), {r.name for r in replicas}) == {
        replicas[1].name
    }
    router.dispatched(request(hashes=[b"%d" % number for number in range(9)]), replicas[0])
    assert set(router.owners) == {b"0", b"1", b"2"}  # more than there is room for


@given(st.sampled_from([*ROUTERS.values()]), st.lists(st.tuples(st.integers(0, 3), st.booleans())))
def test_replicas_may_be_replaced_by_as_many_others(router_class, history):
    """Whoever is told to forget those that are gone goes on with those that are there."""
    router, them, number = router_class(), fleet(3), 0
    for who, is_lost in history:
        asked = request(tenant="ada" * (who % 2), hashes=[b"all", b"%d" % who])
        chosen = them[send(router, asked, them)]
        if is_lost:  # its requests end later
            lost, number = them.pop(who % 3), number + 1
            them.append(Replica(f"new-{number}"))
            router.forget({lost.name})
        router.finished(asked, chosen)
    owners = getattr(router, "owners", {}).values()
    assert set().union(*owners) <= {one.name for one in them}


@pytest.mark.parametrize("router_class", [LeastLoaded, Session, PrefixAware])
def test_places_that_have_changed_are_not_taken_for_the_old_ones(router_class):
    router, them = router_class(), fleet(3)
    asked = [request(tenant=f"user-{n}", hashes=[b"%d" % n]) for n in range(30)]
    for one in asked:
        send(router, one, them)
    router.forget({them.pop(0).name})
    them.append(Replica("new"))
    again = [request(tenant=f"user-{n}", hashes=[b"new"]) for n in range(30)]
    expected = [router_class().choose(one, them) for one in again]
    assert [router.choose(one, them) for one in again] == expected


def test_what_a_router_remembers_of_loads_does_not_grow_with_requests():
    """A session's requests never ask the least loaded, and are counted there all the same."""
    router, them = Session(), fleet(3)
    for number in range(2000):
        asked = request(tenant="" if number == 0 else f"user-{number % 7}")
        router.finished(asked, them[send(router, asked, them)])
    assert len(router.others.heap) <= 4 * len(them) + 64
