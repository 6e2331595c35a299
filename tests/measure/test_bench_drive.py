"""A workload through an engine, on a clock that goes one second a forward pass."""

import pytest

from labkit.engine.naive import NaiveEngine
from labkit.engine.request import Request, StepEvent
from labkit.measure.bench import slots
from labkit.measure.bench.drive import BenchError, bar, drive, percentile
from labkit.workbook.fakes import ScriptedModel


@pytest.fixture
def model():
    return ScriptedModel()


def run(model, requests, **options):
    def sleep(seconds):
        model.now += seconds

    engine = NaiveEngine(model, [], clock=model.clock)
    return drive(engine, requests, clock=model.clock, sleep=sleep, **options)


def test_times_count_from_the_start_of_the_run(model):
    model.now = 100.0
    result = run(model, [Request("a", [3], max_tokens=2), Request("b", [4], max_tokens=1)])
    assert result.token_times == {"a": [1.0, 2.0], "b": [3.0]}
    assert (result.num_tokens, result.seconds, result.tokens_per_s) == (3, 3.0, 1.0)
    assert result.step_seconds == [1.0, 1.0, 1.0]
    assert result.latencies["b"].ttft == 3.0


def test_a_request_is_served_from_its_arrival_on_and_not_before(model):
    late, first = Request("b", [4], 2, arrival=10.0), Request("a", [3], 2, arrival=4.0)
    result = run(model, [late, first])
    assert result.token_times == {"a": [5.0, 6.0], "b": [11.0, 12.0]}
    assert result.seconds == 8.0  # from the first arrival to the last token


def test_who_arrives_during_a_step_has_waited_since_then(model):
    result = run(model, [Request("a", [3], 3), Request("b", [4], 1, arrival=0.5)])
    assert result.token_times["b"] == [4.0]
    assert result.latencies["b"].ttft == 3.5


def test_the_same_requests_can_be_run_again(model):
    requests = [Request("a", [3], 2), Request("b", [5], 4)]
    assert run(model, requests).token_ids == run(model, requests).token_ids
    assert requests[0].output_token_ids == []


def test_progress_is_told_in_tokens(model):
    told = []
    run(model, [Request("a", [3], 2)], tell=told.append)
    assert told == [bar(1, 2), bar(2, 2)]
    assert bar(1, 2, width=4) == "[##..] 1 of 2 tokens"


def test_a_request_that_fails_ends_the_benchmark(model):
    class Failing(NaiveEngine):
        def step(self):
            return [StepEvent("a", None, "error", 0.0, error="no room")]

    with pytest.raises(BenchError, match="'a' failed: no room"):
        drive(Failing(model, []), [Request("a", [3])])


@pytest.mark.parametrize(
    "values, percent, expected",
    [
        ([], 50, None), ([7], 99, 7), ([3, 1, 2], 50, 2), ([1, 2, 3, 4], 50, 2),
        (list(range(1, 101)), 99, 99), ([1, 2], 99, 2), ([2, 1], 0, 1),
    ],
)  # fmt: skip
def test_a_percentile_is_a_value_that_was_there(values, percent, expected):
    assert percentile(values, percent) == expected


def test_unused_slots_by_arithmetic():
    assert slots.stored(10, 7) == 16
    rows = slots.by_arithmetic([16, 17], sizes=(8, 16))
    assert [row["unused_mean"] for row in rows] == [3.5, 7.5]
    assert [row["unused_share"] for row in rows] == [7 / 40, 15 / 48]
