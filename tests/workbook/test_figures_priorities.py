"""The figures of notebook 08 show the numbers that they are given."""

from labkit.engine.request import Request
from labkit.measure.experiments.priorities import Served
from labkit.measure.experiments.priorities_costs import WayBack
from labkit.measure.experiments.priorities_simulated import Point
from labkit.measure.schedule import Schedule, Step
from labkit.workbook.figures.priorities import classes_figure, rate_figure, ways_back_figure


def served(first_chat_token: int) -> Served:
    """Steps of one second; chat comes in step 1, the batch request ends in step 9."""
    schedule = Schedule([Step(float(i), float(i + 1)) for i in range(10)])
    names = {"chat-0": (1, [first_chat_token]), "batch-0": (0, [0, 9])}
    requests = {n: Request(n, [1], tenant=n.split("-")[0]) for n in names}
    came = {n: step for n, (step, _) in names.items()}
    return Served(schedule, requests, came, {n: steps for n, (_, steps) in names.items()})


def test_chat_and_batch_are_told_for_each_run():
    picture = classes_figure({"fcfs": served(7), "priority": served(1)}, slo_s=2.0)
    assert "fcfs: chat TTFT p50 7.00 s, p99 7.00 s, batch done after 10.0 s" in picture.story
    assert "priority: chat TTFT p50 1.00 s" in picture.story
    labels = [text.get_text() for text in picture.axes[0].get_yticklabels()]
    assert labels == ["fcfs", "priority"]


def test_both_ways_back_are_drawn_in_milliseconds():
    picture = ways_back_figure([WayBack(16, 0.02, 0.01), WayBack(64, 0.08, 0.02)])
    assert "After 64 tokens, 80 ms by recompute and 20 ms by swap: 4.0 times" in picture.story
    recompute, swap = (line.get_ydata() for line in picture.axes[0].lines)
    assert list(recompute) == [20, 80] and list(swap) == [10, 20]


def test_each_policy_has_a_line_over_the_load():
    def point(policy, rate, p99):
        return Point(policy, rate, 0.1, p99, 1.0, 3.0, 9.0, 0)

    points = [point("fcfs", 8, 0.1), point("fcfs", 24, 5.0), point("priority", 8, 0.1)]
    picture = rate_figure(points)
    assert "fcfs: chat p99 0.10 s at 8 a second, 5.00 s at 24" in picture.story
    named = {line.get_label(): list(line.get_ydata()) for line in picture.axes[0].lines}
    assert named["fcfs"] == [0.1, 5.0] and named["priority"] == [0.1]
