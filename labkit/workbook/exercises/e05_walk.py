"""Notebook 05, a program's queries and its walk of a block table: `query_rows` and `walk`."""

from labkit.workbook.fakes_kernels import WEIGHTS, draw_weights, drawn_rows
from labkit.workbook.registry import Case, Exercise, Mistake


def _rows(kv_heads, group, rows, token=0, num_tokens=1):
    """Which query each row of each program is: a program for each kv head."""

    def observe(part):
        import numpy as np

        from labkit.workbook.fakes_kernels import on_twin

        module, _ = on_twin(part)
        heads, said, stands, masks = kv_heads * group, [], [], set()
        for kv_head in range(kv_heads):
            found = module.query_rows(token, num_tokens, kv_head, kv_heads, group, rows)
            tokens, lines, real = (np.asarray(x) for x in found)
            masks.add(str(real.dtype))
            each = zip(tokens.tolist(), lines.tolist(), real.tolist(), strict=True)
            each = [(t, line) if is_real else None for t, line, is_real in each]
            said.append([f"t{e[1] // heads} h{e[1] % heads}" if e else "-" for e in each])
            stands.append([e[0] for e in each if e])
        return {"queries": said, "tokens": stands, "dtype of real": sorted(masks)}

    return observe


def _program(*queries):
    """"0.1" is head 1 of token 0; "-" a row that only fills up."""
    return [q if q == "-" else "t{} h{}".format(*q.split(".")) for q in queries]


def _queries(name, observe, *programs):
    tokens = [[int(q.split(".")[0]) for q in program if q != "-"] for program in programs]
    expected = {"queries": [_program(*p) for p in programs], "tokens": tokens}
    expected["dtype of real"] = ["bool"]

    def draw(expected, found):
        name = "query (token, head) of each row of each program"
        return drawn_rows(expected["queries"], found["queries"], name)

    return Case(name, observe, expected, draw)


ROWS = Exercise(
    id="05.3",
    module="labkit.kernels.gpu.paged",
    symbol="query_rows",
    core=False,
    minutes=25,
    difficulty=2,
    cases=(
        _queries("one_head", _rows(1, 1, 1), ["0.0"]),
        _queries("a_group", _rows(1, 2, 2), ["0.0", "0.1"]),
        _queries("no_groups", _rows(3, 1, 1), ["0.0"], ["0.1"], ["0.2"]),
        _queries("two_groups", _rows(2, 2, 2), ["0.0", "0.1"], ["0.2", "0.3"]),
        _queries(
            "a_later_token",
            _rows(2, 3, 4, token=5),
            ["5.0", "5.1", "5.2", "-"], ["5.3", "5.4", "5.5", "-"],
        ),
        _queries(
            "filled_up",
            _rows(1, 2, 8),
            ["0.0", "0.1", *"------"],
        ),
        _queries(
            "several_tokens",
            _rows(2, 2, 8, token=3, num_tokens=3),
            ["3.0", "3.1", "4.0", "4.1", "5.0", "5.1", "-", "-"],
            ["3.2", "3.3", "4.2", "4.3", "5.2", "5.3", "-", "-"],
        ),
        _queries(
            "whole_tokens",
            _rows(1, 3, 8, num_tokens=4),
            ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2", "-", "-"],
        ),
        _queries(
            "exactly_full",
            _rows(1, 2, 4, token=1, num_tokens=9),
            ["1.0", "1.1", "2.0", "2.1"],
        ),
    ),
    mistakes=(
        Mistake(
            "heads_dealt_out",
            (
                (
                    "(tokens * KV_HEADS + kv_head) * GROUP + rows % GROUP",
                    "(tokens * GROUP + rows % GROUP) * KV_HEADS + kv_head",
                ),
            ),
        ),
        Mistake("first_group_for_all", (("(tokens * KV_HEADS + kv_head)", "(tokens * KV_HEADS)"),)),
        Mistake("filling_is_real", (("(rows // GROUP < num_tokens) & ", ""),)),
        Mistake("half_a_token", ((" & (rows < ROWS // GROUP * GROUP)", ""),)),
        Mistake(
            "tokens_side_by_side",
            (
                ("token + rows // GROUP", "token + rows % num_tokens"),
                ("GROUP + rows % GROUP", "GROUP + rows // num_tokens % GROUP"),
            ),
        ),
        Mistake("rows_counted_as_tokens", (("(rows // GROUP < num", "(rows < num"),)),
        Mistake("every_token_is_the_first", (("token + rows // GROUP", "token + rows * 0"),)),
    ),
)


def _walk(*arguments, **options):
    def observe(part):
        from labkit.workbook.fakes_kernels import walk

        return walk(part, *arguments, **options)

    return observe


def _seen(reads, num_bytes, *weights, largest=None, total=None):
    """Expected: of each row the weights of the tokens; a row that saw none has LOWEST. Without
    `reads` it is open what is read."""
    expected = {
        "largest": largest or [0.0 if any(row) else "LOWEST" for row in weights],
        "total": total or [float(sum(row)) for row in weights],
        WEIGHTS: [[float(weight) for weight in row] for row in weights],
        "unlike dtypes": [],
        "dtypes": ["float32"] * 3,
    }
    if reads is None:
        return expected
    reads = {str(program): blocks for program, blocks in enumerate(reads)}
    return expected | {"reads": reads, "bytes read": num_bytes}


TOKEN = 2 * 16 * 4  # bytes of a key and a value

WALK = Exercise(
    id="05.4",
    module="labkit.kernels.gpu.paged",
    symbol="walk",
    core=False,
    minutes=40,
    difficulty=3,
    cases=(
        Case("one_token", _walk([2], [0], [(0, 1)]), _seen([{"2": "0"}], TOKEN, [1]), draw_weights),
        Case(
            "one_tile",
            _walk([2], [3], [(0, 1)]),
            _seen([{"2": "0-3"}], 4 * TOKEN, [1, 1, 1, 1]),
            draw_weights,
        ),
        Case(
            "looks_for",  # 2 ** (0.5 * 2 * log2(e)) = e, against e ** 0 for the others
            _walk([2], [3], [(0, 1)], query={1: 2.0}, scale=0.5),
            _seen(
                [{"2": "0-3"}], 4 * TOKEN, [0.368, 1, 0.368, 0.368],
                largest=[1.443], total=[2.104],
            ),
            draw_weights,
        ),
        Case(
            "two_tiles",
            _walk([5, 2], [7], [(0, 2)]),
            _seen([{"2": "0-3", "5": "0-3"}], 8 * TOKEN, [1] * 8),
            draw_weights,
        ),
        Case(
            "partly_filled",
            _walk([5, 2], [5], [(0, 2)]),
            _seen([{"2": "0-1", "5": "0-3"}], 6 * TOKEN, [1] * 6),
            draw_weights,
        ),
        Case(
            "larger_later",
            _walk([5, 2], [7], [(0, 2)], query={6: 1.0}),
            _seen(
                [{"2": "0-3", "5": "0-3"}], 8 * TOKEN, [0.368] * 6 + [1, 0.368],
                largest=[1.443], total=[3.575],
            ),
            draw_weights,
        ),
        Case(
            "three_blocks_a_tile",
            _walk([3, 0, 4], [11], [(0, 2)], tile=8),
            _seen([{"0": "0-3", "3": "0-3", "4": "0-3"}], 12 * TOKEN, [1] * 12),
            draw_weights,
        ),
        Case(
            "causal",
            _walk([5, 2], [4, 5, 6], [(0, 2)]),
            _seen(
                [{"2": "0-2", "5": "0-3"}], 7 * TOKEN,
                [1] * 5 + [0] * 2, [1] * 6 + [0], [1] * 7,
            ),
            draw_weights,
        ),
        Case(
            "in_parts",
            _walk([5, 2, 1], [9], [(0, 1), (1, 2), (2, 3)]),
            _seen(
                [{"5": "0-3"}, {"2": "0-3"}, {"1": "0-1"}], 10 * TOKEN,
                [1] * 4 + [0] * 6, [0] * 4 + [1] * 4 + [0] * 2, [0] * 8 + [1] * 2,
            ),
            draw_weights,
        ),
        Case(
            "empty_part",
            _walk([5], [3], [(0, 1), (1, 1)]),
            _seen([{"5": "0-3"}], 4 * TOKEN, [1] * 4, [0] * 4),
            draw_weights,
        ),
        Case(
            "window",
            _walk([5, 2, 1], [9], [(1, 3)], window=4, exact=False),
            _seen(None, None, [0] * 6 + [1] * 4),
            draw_weights,
        ),
        Case(
            "blind_at_first",  # the second query sees nothing of the first tile
            _walk([5, 2], [4, 7], [(0, 2)], window=3, exact=False),
            _seen(None, None, [0, 0, 1, 1, 1, 0, 0, 0], [0] * 5 + [1] * 3),
            draw_weights,
        ),
        Case(
            "sees_nothing",  # of its part: the first query
            _walk([5, 2], [2, 6], [(1, 2)]),
            _seen([{"2": "0-2"}], 3 * TOKEN, [0] * 7, [0, 0, 0, 0, 1, 1, 1]),
            draw_weights,
        ),
        Case(
            "filled_up",  # rows that only fill up have a place of 0
            _walk([5, 2], [4, 5, 0, 0], [(0, 2)]),
            _seen([{"2": "0-1", "5": "0-3"}], 6 * TOKEN, [1] * 5 + [0], [1] * 6,
                  [1] + [0] * 5, [1] + [0] * 5),
            draw_weights,
        ),
        Case(
            "second_head",
            _walk([5, 2], [5], [(0, 2)], kv_heads=2),
            _seen([{"2": "h1 0-1", "5": "h1 0-3"}], 6 * TOKEN, [1] * 6),
            draw_weights,
        ),
        Case(
            "odd_head_size",
            _walk([2], [3], [(0, 1)], head_dim=12),
            _seen([{"2": "0-3"}], 4 * TOKEN * 12 // 16, [1] * 4),
            draw_weights,
        ),
        Case(
            "half_precision",
            _walk([2], [3], [(0, 1)], dtype="float16"),
            _seen([{"2": "0-3"}], 2 * TOKEN, [1] * 4),
            draw_weights,
        ),
    ),
    mistakes=(
        Mistake("own_token_not_seen", (("<= seen[:, None])", "< seen[:, None])"),)),
        Mistake("one_token_too_many", (("<= seen[:, None])", "<= seen[:, None] + 1)"),)),
        Mistake(
            "padding_counted", (('        scores = tl.where(sees, scores, float("-inf"))\n', ""),)
        ),
        Mistake("window_ignored", ((" & (places[None, :] > seen[:, None] - window)", ""),)),
        Mistake("one_tile_too_few", (("range(begin, end)", "range(begin, end - 1)"),)),
        Mistake("one_tile_too_many", (("range(begin, end)", "range(begin, end + 1)"),)),
        Mistake("always_from_the_first_tile", (("range(begin, end)", "range(0, end)"),)),
        Mistake("natural_logarithm", (("(scale * LOG2_E)", "scale"),)),
        Mistake("begins_at_minus_infinity", (("LOWEST, tl.float32", 'float("-inf"), tl.float32'),)),
        Mistake("reads_past_the_end", (("there = places <= last", "there = places >= 0"),)),
        Mistake("window_off_by_one", (("> seen[:, None] - window", ">= seen[:, None] - window"),)),
    ),
)  # fmt: skip

EXERCISES = (ROWS, WALK)
