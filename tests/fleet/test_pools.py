"""Two pools: who goes where, when a pool helps the other, and what holds whatever happens."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.fleet.pools import DEDICATED, SHARED, Pools, Spill
from labkit.fleet.routing import NoReplica, Replica

CHAT, BATCH = (SimpleNamespace(priority=p, prompt_token_ids=[1], max_tokens=9) for p in (0, 5))


def replicas(*tokens, dedicated=1, lost=()):
    """The first `dedicated` of them in that pool; each with so many tokens under way."""
    return [
        Replica(f"r{i}", i not in lost, count > 0, count, DEDICATED if i < dedicated else SHARED)
        for i, count in enumerate(tokens)
    ]


@pytest.mark.parametrize(
    ("request_", "spill", "them", "index"),
    [
        (CHAT, Spill(), replicas(100, 0, 0), 0),
        (BATCH, Spill(), replicas(0, 900, 800), 2),
        (CHAT, Spill(urgent_above=100), replicas(100, 50, 60), 1),
        (CHAT, Spill(urgent_above=101), replicas(100, 50, 60), 0),
        (CHAT, Spill(urgent_above=100), replicas(100, 100, 160), 0),
        (BATCH, Spill(lend_below=1), replicas(0, 900, 800), 0),
        (BATCH, Spill(lend_below=1), replicas(1, 900, 800), 2),
        (BATCH, Spill(lend_below=1), replicas(0, 0, 800), 1),
        (CHAT, Spill(), replicas(100, 0, 0, lost={0}), 1),
        (BATCH, Spill(), replicas(100, 0, 0, lost={1, 2}), 0),
        (BATCH, Spill(), replicas(0, 900, 800, dedicated=2), 2),
    ],
)
def test_who_goes_where(request_, spill, them, index):
    assert Pools(spill=spill).choose(request_, them) == index


def test_nobody_is_healthy():
    with pytest.raises(NoReplica, match="0 of 3 replicas"):
        Pools().choose(CHAT, replicas(0, 0, 0, lost={0, 1, 2}))


@given(
    st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.booleans()), min_size=1, max_size=6),
    st.booleans(),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_whatever_the_rules_the_chosen_one_is_healthy_and_spilling_never_makes_it_worse(
    shape, urgent, above, below
):
    them = [
        Replica(f"r{i}", healthy, 1, tokens, DEDICATED if dedicated else SHARED)
        for i, (tokens, healthy, dedicated) in enumerate(shape)
    ]
    if not any(r.healthy for r in them):
        return
    chosen = them[Pools(spill=Spill(above, below)).choose(CHAT if urgent else BATCH, them)]
    assert chosen.healthy
    home = DEDICATED if urgent else SHARED
    at_home = [r.num_tokens for r in them if r.healthy and r.pool == home]
    if chosen.pool != home and at_home:
        assert chosen.num_tokens < min(at_home)
    elif at_home:
        assert chosen.num_tokens == min(at_home)
