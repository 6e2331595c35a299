"""Notebook 02, rows of equal length: `left_pad` and `next_logits`."""

import contextlib

from labkit.workbook import drawings
from labkit.workbook.registry import Case, Exercise, Mistake


def _pad(sequences, pad_token_id):
    def observe(part):
        given = [list(sequence) for sequence in sequences]
        token_ids, mask = part.left_pad(given, pad_token_id)
        return {
            "token_ids": token_ids,
            "attention_mask": mask,
            "sequences afterwards": given,
        }

    return observe


def _padded(token_ids, attention_mask, sequences):
    return {
        "token_ids": token_ids,
        "attention_mask": attention_mask,
        "sequences afterwards": sequences,
    }


def _draw_rows(expected, found):
    """The token ids side by side, or the masks where the ids are right."""
    name = "token_ids" if expected["token_ids"] != found["token_ids"] else "attention_mask"
    return drawings.rows(expected[name], found[name], name)


TOKENS = "token_ids = [[pad_token_id] * (longest - len(s)) + list(s) for s in sequences]"
MASK = "mask = [[0] * (longest - len(s)) + [1] * len(s) for s in sequences]"
RIGHT_TOKENS = "token_ids = [list(s) + [pad_token_id] * (longest - len(s)) for s in sequences]"
RIGHT_MASK = "mask = [[1] * len(s) + [0] * (longest - len(s)) for s in sequences]"

LEFT_PAD = Exercise(
    id="02.1",
    module="labkit.engine.static",
    symbol="left_pad",
    core=True,
    minutes=15,
    difficulty=1,
    cases=(
        Case("one_sequence", _pad([[5, 7]], 0), _padded([[5, 7]], [[1, 1]], [[5, 7]]), _draw_rows),
        Case(
            "equal_lengths",
            _pad([[1, 2], [3, 4]], 0),
            _padded([[1, 2], [3, 4]], [[1, 1], [1, 1]], [[1, 2], [3, 4]]),
            _draw_rows,
        ),
        Case(
            "two_lengths",
            _pad([[5], [7, 8, 9]], 0),
            _padded([[0, 0, 5], [7, 8, 9]], [[0, 0, 1], [1, 1, 1]], [[5], [7, 8, 9]]),
            _draw_rows,
        ),
        Case(
            "pad_token_in_the_text",  # a chat template is full of end tokens, often the padding
            _pad([[2, 5], [2, 2, 5, 2]], 2),
            _padded([[2, 2, 2, 5], [2, 2, 5, 2]], [[0, 0, 1, 1], [1] * 4], [[2, 5], [2, 2, 5, 2]]),
            _draw_rows,
        ),
        Case(
            "batch_of_four",
            _pad([[1, 2], [3], [4, 5, 6, 7], [8, 9, 1]], 10),
            _padded(
                [[10, 10, 1, 2], [10, 10, 10, 3], [4, 5, 6, 7], [10, 8, 9, 1]],
                [[0, 0, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 1, 1, 1]],
                [[1, 2], [3], [4, 5, 6, 7], [8, 9, 1]],
            ),
            _draw_rows,
        ),
    ),
    mistakes=(
        Mistake("right_padding", ((TOKENS, RIGHT_TOKENS), (MASK, RIGHT_MASK))),
        Mistake("mask_on_the_other_side", ((MASK, RIGHT_MASK),)),
        Mistake("mask_all_ones", ((MASK, "mask = [[1] * longest for s in sequences]"),)),
        Mistake("mask_inverted", (("[[0] * (longest", "[[1] * (longest"), ("[1] * l", "[0] * l"))),
        Mistake(
            "mask_from_ids",
            ((MASK, "mask = [[int(t != pad_token_id) for t in row] for row in token_ids]"),),
        ),
        Mistake("cut_to_the_shortest", (("max(len", "min(len"), ("list(s)", "list(s)[-longest:]"),
                                        ("[1] * len(s)", "[1] * longest"))),
        Mistake(
            "padded_in_place",
            (
                (
                    f"    {TOKENS}\n    {MASK}",
                    f"    {MASK}\n    for s in sequences:\n"
                    "        s[:0] = [pad_token_id] * (longest - len(s))\n"
                    "    token_ids = [list(s) for s in sequences]",
                ),
            ),
        ),
        Mistake("always_zero", (("[[pad_token_id] *", "[[0] *"),)),
    ),
)  # fmt: skip


def _ask(sequences):
    def observe(part):
        from labkit.workbook.fakes_batching import PaddedModel

        model = PaddedModel()
        given = [list(s) for s in sequences]
        logits = part.next_logits(model, given, 7)
        shape = list(getattr(logits, "shape", ()))
        return {
            "next tokens": logits.argmax(-1).tolist() if len(shape) == 2 else None,
            "shape": shape,
            "shape of each forward pass": model.shapes,
            "columns of logits made": model.logits_made,
            "use_cache": model.use_cache,
            "gradients kept": model.kept_gradients,
            "sequences changed": given != [list(s) for s in sequences],
        }

    return observe


def _scores(part):
    from labkit.workbook.fakes_batching import PaddedModel

    return part.next_logits(PaddedModel(), [[3, 1], [2]], 7).tolist()


def _elsewhere(part):
    """The model is on a device of its own; a part that needs the numbers there is let off."""
    from labkit.workbook.fakes_batching import PaddedModel

    model = PaddedModel("meta")
    with contextlib.suppress(RuntimeError, TypeError):
        part.next_logits(model, [[3, 1], [2]], 7)
    return {"tensors on another device": sorted(model.devices - {"meta"})}


def _answer(tokens, columns):
    rows = len(tokens)
    return {
        "next tokens": tokens,
        "shape": [rows, 11],
        "shape of each forward pass": [[rows, columns]],
        "columns of logits made": [1],
        "use_cache": [False],
        "gradients kept": False,
        "sequences changed": False,
    }


def _draw_next(expected, found):
    """The next token of each row, as one column."""
    mine = found["next tokens"]
    column = [[token] for token in mine] if isinstance(mine, list) else mine
    return drawings.rows([[t] for t in expected["next tokens"]], column, "next tokens")


PASS_OVER_ALL = """\
    with torch.inference_mode():
        logits = model(
            input_ids=torch.tensor(token_ids, device=model.device),
            attention_mask=attention_mask,
            position_ids=positions_of(attention_mask),
            use_cache=False,
            logits_to_keep=1,
        ).logits
    return logits[:, -1]"""
PASS_OVER_EACH = """\
    rows = []
    with torch.inference_mode():
        for sequence in sequences:
            logits = model(
                input_ids=torch.tensor([sequence]), use_cache=False, logits_to_keep=1
            ).logits
            rows.append(logits[0, -1])
    return torch.stack(rows)"""

NEXT_LOGITS = Exercise(
    id="02.2",
    module="labkit.engine.static",
    symbol="next_logits",
    core=False,
    minutes=20,
    difficulty=2,
    cases=(
        Case("one_token", _ask([[3]]), _answer([3], 1), _draw_next),
        Case("one_sequence", _ask([[3, 1]]), _answer([5], 2), _draw_next),  # 1*3 + 2*1
        Case(
            "equal_lengths",
            _ask([[3, 1], [2, 4]]),
            _answer([5, 10], 2),  # 1*3 + 2*1; 1*2 + 2*4
            _draw_next,
        ),
        Case(
            "a_short_one_with_a_long_one",
            _ask([[3, 1], [3, 1, 4, 1, 5]]),
            _answer([5, 2], 5),  # as alone; 3 + 2 + 12 + 4 + 25 = 46
            _draw_next,
        ),
        Case(
            "batch_of_four",
            _ask([[6], [3, 1, 4], [2, 4], [1]]),
            _answer([6, 6, 10, 1], 3),  # 6; 3 + 2 + 12 = 17; 2 + 8; 1
            _draw_next,
        ),
        Case("scores", _scores, [[0] * 5 + [1] + [0] * 5, [0] * 2 + [1] + [0] * 8]),
        Case("device", _elsewhere, {"tensors on another device": []}),
    ),
    mistakes=(
        Mistake("no_mask", (("            attention_mask=attention_mask,\n", ""),)),
        Mistake(
            "positions_from_the_padding",
            (("            position_ids=positions_of(attention_mask),\n", ""),),
        ),
        Mistake(
            "right_padding",
            (
                (
                    "    token_ids, mask = left_pad(sequences, pad_token_id)",
                    "    width = max(map(len, sequences))\n"
                    "    token_ids = [s + [pad_token_id] * (width - len(s)) for s in sequences]\n"
                    "    mask = [[1] * len(s) + [0] * (width - len(s)) for s in sequences]",
                ),
            ),
        ),
        Mistake("last_row", (("logits[:, -1]", "logits[-1]"),)),
        Mistake(
            "padded_in_place",
            (
                (
                    "    token_ids, mask = left_pad(sequences, pad_token_id)",
                    "    token_ids, mask = left_pad(sequences, pad_token_id)\n"
                    "    for sequence, row in zip(sequences, token_ids):\n"
                    "        sequence[:] = row",
                ),
            ),
        ),
        Mistake("all_columns", (("            logits_to_keep=1,\n", ""),)),
        Mistake("row_by_row", ((PASS_OVER_ALL, PASS_OVER_EACH),)),
        Mistake("cache_left_on", (("            use_cache=False,\n", ""),)),
        Mistake("gradients_kept", (("torch.inference_mode()", "torch.enable_grad()"),)),
    ),
)

EXERCISES = (LEFT_PAD, NEXT_LOGITS)
