"""Notebook 05, the softmax in pieces: `online_softmax` and `merge`."""

from labkit.workbook.fakes_kernels import LOWEST, drawn_rows
from labkit.workbook.registry import Case, Exercise, Mistake

INF = float("inf")


def _take(scores, values, most, total, acc, dtype="float32"):
    """One tile is taken into account; `values` `[TILE, DIM]` of `dtype`."""

    def observe(part):
        from labkit.workbook.fakes_kernels import dtypes, numbers, on_twin, quiet, tensors

        module, unlike = on_twin(part)
        given = tensors(scores, most, total, acc)
        (tile,) = tensors(values, dtype=dtype)
        with quiet():
            found = module.online_softmax(given[0], tile, *given[1:])
        names = ("largest", "total", "sum of values")
        said = dict(zip(names, map(numbers, found), strict=True))
        return said | {"dtypes": dtypes(found), "unlike dtypes": unlike}

    return observe


def _state(largest, total, acc):
    said = {"largest": largest, "total": total, "sum of values": acc}
    return said | {"dtypes": ["float32"] * 3, "unlike dtypes": []}


def _draw(expected, found):
    """A row for each query: the largest score, the total, the sum of the values."""

    def rows(answer):
        each = (answer["largest"], answer["total"], answer["sum of values"])
        return [[most, total, *acc] for most, total, acc in zip(*each, strict=True)]

    return drawn_rows(
        rows(expected), rows(found), "largest, total, sums of values; a row a query"
    )  # fmt: skip


NOTHING = ([LOWEST], [0.0], [[0.0]])
FOUR = ([3.0], [1.875], [[4.0]])  # after a tile with the scores 0, 1, 2, 3

ONLINE = Exercise(
    id="05.1",
    module="labkit.kernels.gpu.paged",
    symbol="online_softmax",
    core=False,
    minutes=25,
    difficulty=2,
    cases=(
        Case("one_key", _take([[0]], [[5]], *NOTHING), _state([0.0], [1.0], [[5.0]]), _draw),
        Case(
            "one_tile",
            _take([[0, 1, 2, 3]], [[8], [4], [2], [1]], *NOTHING),
            _state([3.0], [1.875], [[4.0]]),
            _draw,
        ),
        Case(
            "smaller_ones",
            _take([[1, 2]], [[4], [8]], *FOUR),
            _state([3.0], [2.625], [[9.0]]),
            _draw,
        ),
        Case(
            "a_larger_one",
            _take([[5, 4]], [[2], [6]], *FOUR),
            _state([5.0], [1.969], [[6.0]]),
            _draw,
        ),
        Case(
            "two_queries",  # the first finds a larger score, the second does not
            _take(
                [[4, 3], [0, 1]], [[1, 2], [3, 4]], [2.0, 1.0], [1.0, 2.0], [[8, 0], [1, 1]]
            ),
            _state([4.0, 1.0], [1.75, 3.5], [[4.5, 4.0], [4.5, 6.0]]),
            _draw,
        ),
        Case(
            "hidden_keys",
            _take([[1, -INF]], [[4], [100]], *FOUR),
            _state([3.0], [2.125], [[5.0]]),
            _draw,
        ),
        Case(
            "nothing_seen",
            _take([[-INF, -INF]], [[4], [8]], *NOTHING),
            _state(["LOWEST"], [0.0], [[0.0]]),
            _draw,
        ),
        Case(
            "large_scores",
            _take([[2000, 1999]], [[2], [4]], [1000.0], [3.0], [[7.0]]),
            _state([2000.0], [1.5], [[4.0]]),
            _draw,
        ),
        Case(
            "half_precision",
            _take([[1, 2]], [[4], [8]], *FOUR, dtype="float16"),
            _state([3.0], [2.625], [[9.0]]),  # no picture: what goes wrong is a dtype
        ),
    ),
    mistakes=(
        Mistake("sum_not_rescaled", (("    acc = acc * rescale[:, None]\n", ""),)),
        Mistake("total_not_rescaled", (("total * rescale + tl", "total + tl"),)),
        Mistake(
            "tile_only",
            (("tl.maximum(most, tl.max(scores, axis=1))", "tl.max(scores, axis=1)"),),
        ),
        Mistake("scaled_the_wrong_way", (("exp2(most - largest)", "exp2(largest - most)"),)),
        Mistake(
            "natural_exponent",
            (
                ("exp2(scores - largest[:, None])", "exp(scores - largest[:, None])"),
                ("exp2(most - largest)", "exp(most - largest)"),
            ),
        ),
        Mistake(
            "divided_too_early",
            (("return largest, total, acc", "return largest, total, acc / total[:, None]"),),
        ),
        Mistake("unlike_dtypes", (("weights.to(values.dtype)", "weights"),)),
    ),
)


def _merge(most, total, acc):
    def observe(part):
        from labkit.workbook.fakes_kernels import dtypes, numbers, on_twin, quiet, tensors

        module, _ = on_twin(part)
        with quiet():
            result = module.merge(*tensors(most, total, acc))
        return {"result": numbers(result), "dtype": dtypes([result])[0]}

    return observe


def _merged(name, most, total, acc, result):
    def draw(expected, found):
        return drawn_rows(expected["result"], found["result"], "the merged result")

    return Case(name, _merge(most, total, acc), {"result": result, "dtype": "float32"}, draw)


MERGE = Exercise(
    id="05.5",
    module="labkit.kernels.gpu.paged",
    symbol="merge",
    core=False,
    minutes=20,
    difficulty=2,
    cases=(
        _merged("one_part", [3], [2], [[8, 4]], [4.0, 2.0]),
        _merged("alike", [3, 3], [2, 2], [[8, 4], [2, 0]], [2.5, 1.0]),
        _merged("more_keys", [3, 3], [1, 3], [[8, 4], [0, 4]], [2.0, 2.0]),
        _merged("a_larger_score", [1, 3], [4, 1], [[8, 4], [2, 6]], [2.0, 3.5]),
        _merged("four_parts", [2, 0, 1, 2], [1, 4, 2, 1], [[1], [4], [2], [4]], [1.75]),
        _merged("large_scores", [2000, 1999], [1, 2], [[4], [2]], [2.5]),
        _merged("far_apart", [0, -200], [1, 2], [[4], [2]], [4.0]),
        _merged("empty_part", [3, LOWEST], [2, 0], [[8, 4], [0, 0]], [4.0, 2.0]),
        _merged("empty_first", [LOWEST, -200], [0, 1], [[0], [7]], [7.0]),
    ),
    mistakes=(
        Mistake(
            "without_weights",
            (
                ("tl.sum(total * weights, axis=0)", "tl.sum(total, axis=0)"),
                ("tl.sum(acc * weights[:, None], axis=0)", "tl.sum(acc, axis=0)"),
            ),
        ),
        Mistake(
            "average_of_results",
            (
                (
                    "    acc = tl.sum(acc * weights[:, None], axis=0)",
                    "    results = acc / each[:, None]",
                ),
                (
                    "return acc / total",
                    "return tl.sum(results, axis=0) / tl.sum(0 * each + 1, axis=0)",
                ),
                ("    total = tl.sum(", "    each = total\n    total = tl.sum("),
            ),
        ),
        Mistake(
            "divided_before_weighting",
            (
                ("    total = tl.sum(total * weights, axis=0)\n", ""),
                ("acc * weights[:, None]", "acc / total[:, None] * weights[:, None]"),
                ("    return acc / total", "    return acc / tl.sum(weights, axis=0)"),
            ),
        ),
        Mistake("total_without_weights", (("total * weights", "total"),)),
        Mistake("natural_exponent", (("tl.exp2(most", "tl.exp(most"),)),
        Mistake("largest_not_taken_off", (("tl.exp2(most - largest)", "tl.exp2(most)"),)),
        Mistake("smallest_taken", (("tl.max(most", "tl.min(most"),)),
        Mistake(
            "empty_part_is_no_number",
            (
                (
                    "    weights = tl.exp2(most - largest)\n",
                    "    weights = tl.exp2(most - largest)\n    acc = acc / total[:, None]\n",
                ),
                ("acc * weights[:, None]", "acc * (weights * each)[:, None]"),
                ("    total = tl.sum(", "    each = total\n    total = tl.sum("),
            ),
        ),
    ),
)

EXERCISES = (ONLINE, MERGE)
