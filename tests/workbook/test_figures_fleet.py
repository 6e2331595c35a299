"""The figures of notebook 09 show the numbers that they are given."""

from labkit.measure.experiments.fleet_hangs import AlwaysClosed, one_hangs
from labkit.measure.experiments.fleet_models import Stay, Visit, Visits
from labkit.measure.experiments.fleet_routing import Routed, Sent
from labkit.workbook.figures.fleet import (
    hang_figure,
    height,
    policies_figure,
    replicas_figure,
    sessions_figure,
    shelf_figure,
)


def visits():
    stays = [Stay("a", 300_000_000, 0.0, 1.0, 4.0), Stay("b", 500_000_000, 2.0, 3.0)]
    asked = [Visit("a", 0.0, 1.0, False), Visit("a", 1.0, 0.0, True), Visit("b", 2.0, 1.5, False)]
    return Visits(asked, stays, 5.0)


def narrow(picture):
    """Whether its labels can be read on a page of 400 pixels."""
    return picture.get_size_inches()[0] <= 6.5


def routed(policy, replicas, cached):
    sent = [
        Sent(float(i), replica, f"p{i % 2}", 100, found, 0.1 * (i + 1))
        for i, (replica, found) in enumerate(zip(replicas, cached, strict=True))
    ]
    return Routed(policy, sent)


def test_models_take_their_bytes_from_load_to_end():
    stays = visits().stays
    assert [height(stays, "a", t, 5.0) for t in (0.0, 3.9, 4.0)] == [300, 300, 0]
    assert [height(stays, "b", t, 5.0) for t in (1.9, 2.0, 5.0)] == [0, 500, 500]


def test_each_run_tells_how_many_found_their_model_and_how_long_the_others_waited():
    picture = shelf_figure({"lru": visits(), "fifo": visits()}, 900_000_000)
    assert "lru: 1 of 3 requests found their model, the others waited 2.5 s in all" in picture.story
    assert len(picture.axes) == 2 and narrow(picture)


def test_requests_stand_at_their_replica_filled_where_they_were_found():
    picture = replicas_figure([routed("prefix", [0, 1, 0], [0, 0, 90])], 2, "measured")
    assert picture.story == "prefix: 30% of prompt tokens from a cache."
    marks = [line for line in picture.axes[0].lines if len(line.get_xdata()) == 1]
    assert [line.get_ydata()[0] for line in marks] == [0, 1, 0] and narrow(picture)
    assert [line.get_markerfacecolor() == "none" for line in marks] == [True, True, False]


def test_policies_are_told_with_their_busiest_replica():
    picture = policies_figure([routed("herd", [1, 1, 1, 0], [0, 80, 80, 0])], 2, "modelled")
    assert "herd: hit rate 40%, TTFT p50 200 ms, p99 400 ms, at most 3 requests" in picture.story
    assert narrow(picture)


def test_who_waited_for_a_time_out_is_counted():
    picture = hang_figure({"no breaker": one_hangs(AlwaysClosed)})
    assert "no breaker: 20 of 160 requests waited for a time-out" in picture.story
    assert narrow(picture)


def test_sessions_that_moved_are_told_beside_those_that_had_to():
    picture = sessions_figure({"modulo": ([0, 1, 2, 1], [0, 2, 0, 0])}, 3, lost=1)
    assert picture.story == "modulo: 3 of 4 sessions move, 2 were on the lost one."
    assert narrow(picture)
