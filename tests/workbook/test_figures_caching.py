"""The figures of notebook 03 tell their numbers; exercise 03.2 agrees with transformers."""

from types import SimpleNamespace

import pytest
from matplotlib.text import Text

from labkit.measure.experiments.caching import Served, Split
from labkit.workbook.figures import caching
from labkit.workbook.plots import GREY

SECONDS = {"no cache": [0.1, 0.4], "cache": [0.05, 0.06]}
PICTURES = {
    "reads": lambda: caching.reads_figure(4, 2),
    "positions": lambda: caching.positions_figure([16, 256], SECONDS),
    "batches": lambda: caching.batches_figure([1, 16], SECONDS, 32),
    "served": lambda: caching.served_figure(
        [Served("a\nb", 10, 10, 1044, 2.0, 0, ()), Served("c", 10, 10, 98, 1.0, 0.9, ())]
    ),
    "split": lambda: caching.split_figure([Split("here", 0.001, 0.009, "measured")]),
    "rows": lambda: caching.rows_figure([(10, 5), (20, 5)], 100, "Rows"),
}
STORIES = {
    "reads": "The 2 new queries read the keys and values of 6 positions; those of the first 4 come "
    "from the cache, and the 4 old queries are needed by nobody.",
    "positions": "no cache: 100 ms after 16 tokens, 400 ms after 256 (4.0 times); "
    "cache: 50 ms after 16 tokens, 60 ms after 256 (1.2 times).",
    "batches": "no cache: 10 tokens/s alone, 40 in a batch of 16 (4.0 times); "
    "cache: 20 tokens/s alone, 267 in a batch of 16 (13.3 times).",
    "served": "a b: 1,044 tokens computed, 5 tokens/s; c: 98 tokens computed, 10 tokens/s.",
    "split": "here (measured): 1.00 ms beside the model, 9.00 ms in it, splitting gains at most "
    "1.11 times.",
    "rows": "2 rows of 100 tokens reserve 200; 40 are ever used, 20%.",
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_figure_says_its_numbers_in_one_line(name):
    assert repr(PICTURES[name]()) == STORIES[name]


@pytest.mark.parametrize("name", PICTURES)
def test_a_figure_is_drawn_in_words_that_read_on_both_pages(name):
    picture = PICTURES[name]()
    assert picture._repr_png_()[0].startswith(b"\x89PNG")
    assert {t.get_color() for t in picture.findobj(Text) if t.get_text()} == {GREY}


def test_nobody_is_drawn_to_see_the_future():
    (axes,) = PICTURES["reads"]().axes
    boxes = [(round(p.get_x() + 0.5), round(p.get_y() + 0.5)) for p in axes.patches]
    assert boxes == [(column, row) for row in range(6) for column in range(row + 1)]


def test_the_numbers_of_exercise_03_2_are_those_of_transformers():
    import torch
    from transformers.models.llama.modeling_llama import eager_attention_forward

    from labkit.workbook.exercises.e03_attention import FROM_TRANSFORMERS, small_integers

    q, kv = (tensor.double() for tensor in small_integers())
    mask = torch.zeros(1, 1, 2, 4, dtype=torch.float64)
    mask[..., 0, 3] = -torch.inf
    layer = SimpleNamespace(num_key_value_groups=2, training=False)
    queries = q.transpose(0, 1)[None]
    out, _ = eager_attention_forward(layer, queries, kv[:1], kv[1:], mask, scaling=2**-0.5)
    assert [[[round(x, 4) for x in row] for row in token] for token in out[0].tolist()] == (
        FROM_TRANSFORMERS
    )
