"""Batch size: where the knee is, and which batch is the best under an SLO."""

import pytest

from labkit.measure.batching import BatchPoint
from labkit.workbook.figures.batches import batches_figure, best_under, knee, story_of

SPEEDS = {1: 50.0, 2: 95.0, 4: 170.0, 8: 230.0, 16: 245.0, 32: 250.0}
POINTS = [BatchPoint(b, s, 0.1 * b, 0.01 * b, 1 + 0.25 * b, 2**20 * b) for b, s in SPEEDS.items()]
LINEAR = [BatchPoint(b, 10.0 * b, 0.1, 0.1, 1.0, 0) for b in (1, 2, 3, 4)]
FALLING = [BatchPoint(b, 10.0 / b, 0.1, 0.1, 1.0, 0) for b in (1, 2, 3, 4)]


def test_the_knee_is_where_throughput_levels_off():
    assert knee(POINTS).batch_size == 8
    assert knee(POINTS[::-1]).batch_size == 8


@pytest.mark.parametrize("points", [LINEAR, FALLING, POINTS[:2]])
def test_there_is_no_knee_without_levelling_off(points):
    assert knee(points) is None and "No knee" in story_of(points)


@pytest.mark.parametrize(
    "slo_s, latency, best",
    [
        (None, "e2e_s", 32),
        (2.0, "e2e_s", 4),  # exactly at the limit is within it
        (1.99, "e2e_s", 2),
        (0.9, "ttft_s", 8),
        (0.02, "itl_s", 2),
    ],
)
def test_the_best_batch_has_the_most_tokens_within_the_slo(slo_s, latency, best):
    assert best_under(POINTS, slo_s, latency).batch_size == best


def test_among_equals_the_smaller_batch_and_none_where_none_meets_it():
    equal = [BatchPoint(b, 10.0, 0.1, 0.1, 1.0, 0) for b in (4, 2, 8)]
    assert best_under(equal, 1.0).batch_size == 2
    assert best_under(POINTS, 1.0) is None


def test_the_story_has_the_numbers():
    assert story_of(POINTS, 2.0) == (
        "Most tokens per second: batch 32, 250 tokens/s, E2E 9 s, 32 MiB. "
        "Knee: batch 8, 230 tokens/s, E2E 3 s, 8 MiB. "
        "Within E2E <= 2 s the best is batch 4, 170 tokens/s, E2E 2 s, 4 MiB."
    )
    assert story_of(POINTS, 0.5).endswith("there is no batch size: goodput is 0.")


@pytest.mark.parametrize("slo_s", [None, 0.5, 2.0])
@pytest.mark.parametrize("points", [POINTS, LINEAR, POINTS[:1]])
def test_a_sweep_is_a_picture(points, slo_s):
    picture = batches_figure(points, "t", slo_s)
    assert picture._repr_png_()[0].startswith(b"\x89PNG") and picture.story
