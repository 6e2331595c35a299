"""The figures of notebook 02 say in words what they show."""

from labkit.engine.request import Request
from labkit.measure.batching import BatchPoint, BatchRun
from labkit.measure.metrics import Latency
from labkit.workbook.figures.batching import goodput_figure, throughput_figure, waste_figure


def test_the_waste_is_counted_and_hatched():
    requests = [Request("a", [1], max_tokens=1), Request("b", [1], max_tokens=4),
                Request("c", [1], max_tokens=3)]  # fmt: skip
    picture = waste_figure(requests, 2, "two rows")
    assert picture.story == (
        "14 row-steps in batches of 2: 8 made a token, 6 (43%) nobody waited for."
    )
    assert any(patch.get_hatch() for patch in picture.axes[0].patches)


def test_throughput_tells_how_many_times():
    points = [BatchPoint(1, 10.0, 1.0, 0.1, 2.0, 5.0), BatchPoint(4, 25.0, 1.0, 0.1, 2.0, 5.0)]
    picture = throughput_figure({"no cache": points})
    assert picture.story == "no cache: 10 tokens/s at batch 1, 25 at 4 (2.5 times)."


def test_goodput_tells_each_size_and_the_best():
    good, late = Latency(0.5, (), 0.1, 1.0), Latency(9.0, (), 0.1, 9.5)
    runs = [BatchRun(1, 2.0, (good, late)), BatchRun(2, 1.0, (good, good))]
    picture = goodput_figure(runs, 1.0, 0.2, 2)
    assert picture.story.endswith("0.50 at 1, 2.00 at 2; best batch: 2.")
    assert goodput_figure(runs, 0.1, 0.2, None).story.endswith("best batch: None.")
