"""Traces are read and refused by line; synthetic requests look like them."""

import pytest

from labkit.measure.simulate import synthetic as made
from labkit.measure.simulate import traces
from labkit.measure.simulate.requests import Arrival, at_rate
from labkit.measure.simulate.synthetic import PUBLISHED, differences, figures, synthetic
from labkit.measure.simulate.traces import TraceError

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


def trace(tmp_path, rows, head=HEAD):
    file = tmp_path / "t.csv"
    file.write_text(head + "\r\n".join(rows), encoding="utf-8")
    return file


def test_times_count_from_the_first_row(tmp_path):
    rows = ["2023-11-16 18:17:03.9799600,4808,10", "2023-11-16 18:18:04.2299609,1,8", ""]
    read = list(traces.read(trace(tmp_path, rows)))
    assert read == [Arrival(0.0, 4808, 10), Arrival(60.25, 1, 8)]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("2023-11-16 18:17:04,0,8", "line 3: ContextTokens is '0'; a whole number from 1"),
        ("2023-11-16 18:17:04,7,x", "line 3: GeneratedTokens is 'x'; a whole number from 1"),
        ("2023-11-16 18:17:04,7,1.5", "line 3: GeneratedTokens is '1.5'"),
        ("yesterday,7,8", "line 3: TIMESTAMP is 'yesterday'; a time such as"),
        ("2023-11-16 18:17:04,7", "line 3: 2 fields; 3 are needed"),
        ("2023-11-16 18:17:02,7,8", "line 3: TIMESTAMP is '2023-11-16 18:17:02', before"),
    ],
)
def test_a_wrong_row_is_named_by_line_field_and_value(tmp_path, row, told):
    file = trace(tmp_path, ["2023-11-16 18:17:03,7,8", row])
    with pytest.raises(TraceError) as refused:
        list(traces.read(file))
    assert told in str(refused.value) and str(file) in str(refused.value)


def test_other_columns_no_rows_and_no_file_are_refused(tmp_path):
    with pytest.raises(TraceError, match="line 1: the columns TIMESTAMP,Context"):
        list(traces.read(trace(tmp_path, [], "time,in,out\n")))
    with pytest.raises(TraceError, match="has 0 requests"):
        list(traces.read(trace(tmp_path, [])))
    with pytest.raises(TraceError, match="can't be read: No such file"):
        list(traces.read(tmp_path / "none.csv"))
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="no UTF-8 text"):
        list(traces.read(tmp_path / "b.csv"))


@pytest.mark.parametrize("kind", PUBLISHED)
@pytest.mark.parametrize("seed", [0, 1])
def test_synthetic_requests_have_the_published_figures_within_3_percent(kind, seed):
    found = figures(synthetic(kind, 9000, seed=seed))
    assert max(map(abs, differences(found, PUBLISHED[kind]).values())) < 0.03


def test_a_rate_changes_the_gaps_and_nothing_else():
    slow, fast = list(synthetic("code", 2000)), list(synthetic("code", 2000, rate=100))
    assert [a[1:] for a in slow] == [a[1:] for a in fast]
    there = {"rate": 100, "gap_cv": figures(slow)["gap_cv"]}
    assert max(map(abs, differences(figures(fast), there).values())) < 0.01


def test_a_seed_is_a_workload():
    assert list(synthetic("conv", 50, seed=1)) == list(synthetic("conv", 50, seed=1))
    assert list(synthetic("conv", 50, seed=1)) != list(synthetic("conv", 50, seed=2))
    with pytest.raises(ValueError, match="synthetic 'chat' is not known; accepted are code, conv"):
        next(synthetic("chat", 1))


def test_figures_by_hand():
    arrivals = [Arrival(0, 10, 1), Arrival(1, 20, 3), Arrival(4, 60, 2)]
    found = figures(arrivals)
    assert found == {
        "rate": 0.5, "gap_cv": 0.5, "median_prompt": 20, "median_output": 2,
        "mean_prompt": 30, "mean_output": 2,
    }  # fmt: skip
    assert differences(found, {"rate": 1.0, "median_output": 1}) == {
        "rate": -0.5, "median_output": 1.0,
    }  # fmt: skip
    with pytest.raises(ValueError, match="2 arrivals; at least 3"):
        figures(arrivals[:2])


def test_arrivals_at_another_rate_keep_their_pattern_and_the_time_to_their_deadline():
    arrivals = [Arrival(0, 1, 1), Arrival(1, 1, 1, deadline=3), Arrival(4, 1, 1)]
    slower = list(at_rate(arrivals, 0.25))
    assert [a.time for a in slower] == [0, 2, 8]
    assert [a.deadline for a in slower] == [None, 4, None]


def test_a_deck_has_every_share_of_the_table_once():
    deck = made.cards(made.SHAPES["conv"].outputs)
    assert len(deck) == 1000 and deck == sorted(deck)
    assert sum(value > 129 for value in deck) == 500


def test_arrivals_at_one_time_have_no_rate():
    with pytest.raises(ValueError, match="2 requests arrive at one time"):
        list(at_rate([Arrival(1, 1, 1), Arrival(1, 1, 1)], 5))
