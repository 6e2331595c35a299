"""The figures of notebook 05 tell their numbers."""

import pytest

from labkit.measure.experiments.kernels import Split, Way
from labkit.measure.roofline import Machine
from labkit.workbook.figures import kernels

WAYS = [Way("a copy", 100, 200, 0, 10, 110, 0.0), Way("none", 100, 0, 0, 10, 110, 0.0)]
READS = {(0, 0, 0): {2: 16, 0: 3}, (0, 1, 0): {2: 16, 0: 3}}
PICTURES = {
    "online": lambda: kernels.online_figure([1, 1, 3], [1.0, 2.0, 1.5], [0.1, 0.2, 0.5], 0.5),
    "reads": lambda: kernels.reads_figure(READS, 4, 16, "Reads"),
    "ways": lambda: kernels.ways_figure(WAYS),
    "split": lambda: kernels.split_figure(
        [Split(1024, 1, 8, 1e-4), Split(2048, 1, 8, 2e-4)],
        [Split(1024, 4, 32, 1e-5), Split(2048, 8, 64, 1e-5)],
        132,
    ),
    "roofline": lambda: kernels.decode_roofline(
        Machine(1e12, 1e11), 1e9, {"a": 1e9, "b": 3e9}, "On a card"
    ),
    "roofline, measured": lambda: kernels.decode_roofline(
        Machine(1e12, 1e11), 1e9, {"a": 1e9}, "On a card", {"a": 0.02}
    ),
}
STORIES = {
    "online": "After 3 tiles the result is 0.5000, the softmax over all at once gives 0.5000; the "
    "largest score grew 1 times on the way.",
    "reads": "2 programs, 2 kv heads; of 4 blocks of 16 slots 2 are read, each by 2 programs at "
    "most; 2 belong to nobody and are read by nobody.",
    "ways": "a copy: 2.82 times the least; none: 1.00 times the least.",
    "split": "2,048 tokens: 8 programs without a split, 64 with 8 parts, for 132 multiprocessors; "
    "200 µs a layer against 10 µs (modelled).",
    "roofline": "On a card: a: at least 10 ms (memory); b: at least 30 ms (memory). (hollow marks "
    "modelled by the bytes counted)",
    "roofline, measured": "On a card: a: at least 10 ms (memory), measured 20 ms. (filled marks "
    "measured)",
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_figure_tells_its_numbers_and_can_be_drawn(name):
    picture = PICTURES[name]()
    assert picture.story == STORIES[name]
    assert picture._repr_png_()[0].startswith(b"\x89PNG")
