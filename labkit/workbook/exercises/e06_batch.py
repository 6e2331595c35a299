"""Notebook 06, what the model reads: `FlatBatch.build`."""

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake

FIELDS = (
    "token_ids",
    "positions",
    "slot_mapping",
    "block_tables",
    "query_start",
    "logits_rows",
    "query_lens",
    "context_lens",
)
AFTERWARDS = "block tables of the requests afterwards"


def _draw(expected, found):
    """The first field that differs, as rows."""
    for name in (*FIELDS, AFTERWARDS):
        if name in expected and expected[name] != found.get(name):
            return drawings.rows(expected[name], found.get(name), name=name)
    return None


def _forgive_zeros(rows, spans, block_size):
    """A block that a context doesn't need is never read: 0 in its place is as right."""
    for row, span in zip(rows, spans, strict=False):
        for i in range(-(-span.context_len // block_size), min(len(row), len(span.block_table))):
            row[i] = row[i] or span.block_table[i]


def _batch(*spans, block_size=4):
    """Spans are (tokens, start, block table) or (tokens, start, block table, samples)."""

    def observe(part):
        import torch

        given = [part.Span(ids, start, [*table], *more) for ids, start, table, *more in spans]
        try:
            batch = part.FlatBatch.build(given, block_size, "cpu")
        except ValueError:
            return {"refused": "ValueError"}
        values = {name: getattr(batch, name) for name in FIELDS}
        tensors = {n: v for n, v in values.items() if isinstance(v, torch.Tensor)}
        lists = {name: value.tolist() for name, value in tensors.items()}
        if "block_tables" in lists:
            _forgive_zeros(lists["block_tables"], given, block_size)
        return {
            **lists,
            "query_lens": batch.query_lens,
            "context_lens": batch.context_lens,
            "tensors": sorted(tensors),
            "dtypes": sorted({str(tensor.dtype) for tensor in tensors.values()}),
            "block_size": batch.block_size,
            AFTERWARDS: [list(span.block_table) for span in given],
        }

    return observe


def _fields(tokens, positions, slots, tables, query_start, rows, query_lens, context_lens):
    values = (tokens, positions, slots, tables, query_start, rows, query_lens, context_lens)
    return {
        **dict(zip(FIELDS, values, strict=True)),
        "tensors": sorted(FIELDS[:6]),
        "dtypes": ["torch.int64"],
        "block_size": 4,
    }


def _case(name, spans, expected):
    if "refused" not in expected:
        expected = {**expected, AFTERWARDS: [[*table] for _, _, table, *_ in spans]}
    return Case(name, _batch(*spans), expected, draw=_draw)


BUILD = Exercise(
    id="06.3",
    module="labkit.model.flat_batch",
    symbol="FlatBatch.build",
    core=False,
    minutes=35,
    difficulty=3,
    cases=(
        _case(
            "one_prompt",
            [([11, 12, 13], 0, [0])],
            _fields([11, 12, 13], [0, 1, 2], [0, 1, 2], [[0]], [0, 3], [2], [3], [3]),
        ),
        _case(
            "one_token",
            [([15], 4, [2, 5])],
            _fields([15], [4], [20], [[2, 5]], [0, 1], [0], [1], [5]),
        ),
        _case(
            "full_block",
            [([11, 12, 13, 14], 0, [3, 6])],
            _fields([11, 12, 13, 14], [0, 1, 2, 3], [12, 13, 14, 15], [[3]], [0, 4], [3], [4], [4]),
        ),
        _case(
            "two_requests",
            [([11, 12], 0, [3]), ([21, 22, 23], 0, [1])],
            _fields(
                [11, 12, 21, 22, 23],
                [0, 1, 0, 1, 2],
                [12, 13, 4, 5, 6],
                [[3], [1]],
                [0, 2, 5],
                [1, 4],
                [2, 3],
                [2, 3],
            ),
        ),
        _case(
            "chunk",
            [([31, 32, 33], 3, [6, 2], False), ([41], 1, [4])],
            _fields(
                [31, 32, 33, 41],
                [3, 4, 5, 1],
                [27, 8, 9, 17],
                [[6, 2], [4, 0]],
                [0, 3, 4],
                [3],
                [3, 1],
                [6, 2],
            ),
        ),
        _case(
            "nobody_samples",
            [([51, 52], 0, [7], False)],
            _fields([51, 52], [0, 1], [28, 29], [[7]], [0, 2], [], [2], [2]),
        ),
        _case(
            "blocks_ahead",
            [([61], 3, [5, 9, 8]), ([71], 4, [1, 2])],
            _fields(
                [61, 71], [3, 4], [23, 8], [[5, 9], [1, 2]], [0, 1, 2], [0, 1], [1, 1], [4, 5]
            ),
        ),
        _case(
            "mixed",
            [([15], 8, [2, 5, 0]), ([21, 22], 0, [1]), ([31, 32], 2, [3], False)],
            _fields(
                [15, 21, 22, 31, 32],
                [8, 0, 1, 2, 3],
                [0, 4, 5, 14, 15],
                [[2, 5, 0], [1, 0, 0], [3, 0, 0]],
                [0, 1, 3, 5],
                [0, 2],
                [1, 2, 2],
                [9, 2, 4],
            ),
        ),
        _case("table_too_short", [([11], 0, [1]), ([15], 4, [2])], {"refused": "ValueError"}),
    ),
    mistakes=(
        Mistake("everybody_samples", ((" if s.samples]", "]"),)),
        Mistake("first_row", (("rows = [end - 1", "rows = [end - len(s.token_ids)"),)),
        Mistake("next_row", (("rows = [end - 1", "rows = [end"),)),
        Mistake(
            "positions_from_0",
            (
                (
                    "[p for _, *ends in ranges for p in range(*ends)]",
                    "[p for s in spans for p in range(len(s.token_ids))]",
                ),
            ),
        ),
        Mistake(
            "positions_in_the_batch",
            (
                (
                    "[p for _, *ends in ranges for p in range(*ends)]",
                    "list(range(sum(len(s.token_ids) for s in spans)))",
                ),
            ),
        ),
        Mistake(
            "lengths_not_starts",
            (
                (
                    "query_start=on_device(query_start, device)",
                    "query_start=on_device([0, *[len(s.token_ids) for s in spans]], device)",
                ),
            ),
        ),
        Mistake("padded_with_minus_1", (("*[0] * (width", "*[-1] * (width"),)),
        Mistake(
            "padded_in_place",
            (
                (
                    "        [*s.block_table[:width], *[0] * (width - len(s.block_table))]",
                    "        s.block_table.extend([0] * (width - len(s.block_table)))"
                    " or s.block_table[:width]",
                ),
            ),
        ),
        Mistake(
            "block_too_many",
            (
                (
                    "max(-(-s.context_len // block_size) for s in spans)",
                    "max(s.context_len // block_size + 1 for s in spans)",
                ),
            ),
        ),
        Mistake("ragged_tables", (("[*s.block_table[:width], *[0]", "[*s.block_table, *[0]"),)),
        Mistake(
            "new_tokens_only",
            (("context_lens=[s.context_len for", "context_lens=[len(s.token_ids) for"),),
        ),
        Mistake(
            "slots_from_0",
            (
                (
                    "for one in ranges for slot in slots_of(*one, block_size)",
                    "for s in spans "
                    "for slot in slots_of(s.block_table, 0, len(s.token_ids), block_size)",
                ),
            ),
        ),
    ),
)

EXERCISES = (BUILD,)
