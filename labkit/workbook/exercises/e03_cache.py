"""Notebook 03, what is kept from step to step: `span_of` and `CachedEngine.next_batch`."""

from labkit.workbook.drawings import block_tables, rows
from labkit.workbook.registry import Case, Exercise, Mistake


def _span(prompt, output, computed, num_tokens, table=(2,)):
    def observe(part):
        from labkit.engine.request import Request

        request = Request("a", list(prompt), output_token_ids=list(output))
        request.num_computed_tokens, request.block_table = computed, list(table)
        span = part.span_of(request, num_tokens)
        return {
            "token_ids": list(span.token_ids),
            "start": span.start,
            "block_table": list(span.block_table),
            "samples": bool(span.samples),
            "num_computed_tokens afterwards": request.num_computed_tokens,
        }

    return observe


def _expected(token_ids, start, samples, table=(2,)):
    return {
        "token_ids": token_ids,
        "start": start,
        "block_table": list(table),
        "samples": samples,
        "num_computed_tokens afterwards": start,
    }


def _draw(expected, found):
    def seen(span):
        start, tokens = span["start"], span["token_ids"]
        positions = list(range(start, start + len(tokens)))
        return [tokens, positions, [span["samples"]], [span["num_computed_tokens afterwards"]]]

    return rows(seen(expected), seen(found), name="tokens, positions, samples, computed")


SPAN = Exercise(
    id="03.1",
    module="labkit.engine.runner",
    symbol="span_of",
    core=True,
    minutes=20,
    difficulty=1,
    cases=(
        Case("whole_prompt", _span([5, 6, 7], [], 0, 3), _expected([5, 6, 7], 0, True), _draw),
        Case("decode", _span([5, 6, 7], [8], 3, 1), _expected([8], 3, True), _draw),
        Case("first_chunk", _span([5, 6, 7, 8], [], 0, 2), _expected([5, 6], 0, False), _draw),
        Case("chunk_of_one", _span([5, 6, 7, 8], [], 1, 1), _expected([6], 1, False), _draw),
        Case("last_chunk", _span([5, 6, 7, 8], [], 2, 2), _expected([7, 8], 2, True), _draw),
        Case(
            "prefix_found",
            _span([5, 6, 7], [], 2, 1, (4, 1)),
            _expected([7], 2, True, (4, 1)),
            _draw,
        ),
        # Three outputs are known; their keys and values were lost. 5 of 7 tokens: no question yet.
        Case(
            "recompute",
            _span([5, 6, 7, 8], [9, 1, 2], 2, 3),
            _expected([7, 8, 9], 2, False),
            _draw,
        ),
        # All was lost, as after a preemption: 4 of 5 tokens, the last of them an output.
        Case(
            "from_the_start",
            _span([5, 6, 7], [8, 9], 0, 4),
            _expected([5, 6, 7, 8], 0, False),
            _draw,
        ),
        Case(
            "recomputed",
            _span([5, 6, 7, 8], [9, 1, 2], 5, 2),
            _expected([1, 2], 5, True),
            _draw,
        ),
    ),
    mistakes=(
        Mistake("everything_again", (("start = request.num_computed_tokens", "start = 0"),)),
        Mistake(
            "end_of_the_sequence",
            (("request.tokens_between(start, end)", "request.token_ids[-num_tokens:]"),),
        ),
        Mistake(
            "prompt_only",
            (("request.tokens_between(start, end)", "request.prompt_token_ids[start:end]"),),
        ),
        Mistake(
            "prefill_is_the_prompt",
            (
                (
                    "request.tokens_between(start, end)",
                    "request.tokens_between(start, end) if start else "
                    "request.prompt_token_ids[:end]",
                ),
            ),
        ),
        Mistake(
            "one_is_decode",
            (("end == request.num_tokens", "num_tokens == 1 or end == request.num_tokens"),),
        ),
        Mistake("samples_every_chunk", (("end == request.num_tokens", "True"),)),
        Mistake(
            "samples_after_the_prompt",
            (("end == request.num_tokens", "end >= request.num_prompt_tokens"),),
        ),
        Mistake(
            "positions_restart",
            (("end), start, request.block_table", "end), 0, request.block_table"),),
        ),
        Mistake(
            "last_one_again",
            (
                (
                    "start = request.num_computed_tokens",
                    "start = max(request.num_computed_tokens - 1, 0)",
                ),
                ("end = start + num_tokens", "end = request.num_computed_tokens + num_tokens"),
            ),
        ),
        Mistake(
            "advances_here",
            (
                (
                    "end = start + num_tokens",
                    "end = request.num_computed_tokens = start + num_tokens",
                ),
            ),
        ),
    ),
)


def _engine(part, batch_size, requests):
    """An engine of the part with these requests in line: (id, prompt, output so far, computed)."""
    from labkit.engine.request import Request
    from labkit.workbook.fakes_caching import RememberingDecoder

    decoder = RememberingDecoder()
    engine = part.CachedEngine(decoder, (), batch_size, max_model_len=8)
    for name, prompt, output, computed in requests:
        request = Request(name, list(prompt), 2, output_token_ids=list(output))
        request.num_computed_tokens = computed
        request.block_table = [0] * bool(computed)
        engine.add(request)
    return engine


def _batches(batch_size, *requests, batches=1):
    def observe(part):
        engine = _engine(part, batch_size, requests)
        taken = [engine.next_batch() for _ in range(batches)]
        return {
            "batches": [[request.request_id for request in batch] for batch in taken],
            "block_table": {r.request_id: r.block_table for batch in taken for r in batch},
            "num_computed_tokens": {
                r.request_id: r.num_computed_tokens for batch in taken for r in batch
            },
            "in line afterwards": [request.request_id for request in engine.line],
        }

    return observe


def _taken(batches, tables, line):
    return {
        "batches": batches,
        "block_table": tables,
        "num_computed_tokens": dict.fromkeys(tables, 0),
        "in line afterwards": line,
    }


def _answers(batch_size, *requests):
    """Steps to the end, at most 9 times; the tokens of each answer and those fed in each step."""

    def observe(part):
        engine = _engine(part, batch_size, requests)
        all_of_them, steps = dict(engine.unfinished), 0
        while engine.has_unfinished() and steps < 9:
            engine.step()
            steps += 1
        return {
            "answers": {name: r.output_token_ids for name, r in all_of_them.items()},
            "tokens fed in each step": engine.runner.decoder.fed,
        }

    return observe


def _draw_tables(expected, found):
    return block_tables(expected["block_table"], found["block_table"])


A, B, C = ("a", [3], [], 0), ("b", [5, 1], [], 0), ("c", [2, 2], [], 0)

# After [3] comes 3, after [3, 3] (3+6) % 11 = 9; after [5, 1] (5+2) % 11 = 7, after [5, 1, 7]
# (7+21) % 11 = 6; after [2, 2] (2+4) % 11 = 6, after [2, 2, 6] (6+18) % 11 = 2.
NEXT_BATCH = Exercise(
    id="03.3",
    module="labkit.engine.cached",
    symbol="CachedEngine.next_batch",
    core=False,
    minutes=15,
    difficulty=1,
    cases=(
        Case("nobody", _batches(2), _taken([[]], {}, []), _draw_tables),
        Case("one", _batches(2, A), _taken([["a"]], {"a": [0]}, []), _draw_tables),
        Case(
            "more_than_rows",
            _batches(2, A, B, C),
            _taken([["a", "b"]], {"a": [0], "b": [1]}, ["c"]),
            _draw_tables,
        ),
        Case(
            "next_batch",
            _batches(2, A, B, C, batches=2),
            _taken([["a", "b"], ["c"]], {"a": [0], "b": [1], "c": [0]}, []),
            _draw_tables,
        ),
        Case(
            "started_elsewhere",
            _batches(2, ("a", [3, 3], [], 1), ("b", [5, 1, 4], [7], 3)),
            _taken([["a", "b"]], {"a": [0], "b": [1]}, []),
            _draw_tables,
        ),
        Case(
            "answers",
            _answers(2, A, B, C),
            {
                "answers": {"a": [3, 9], "b": [7, 6], "c": [6, 2]},
                "tokens fed in each step": [3, 2, 2, 1],
            },
        ),
    ),
    mistakes=(
        Mistake("stale_count", (("request.num_computed_tokens = [row], 0", "_ = [row], 0"),)),
        Mistake("same_row", (("= [row], 0", "= [0], 0"),)),
        Mistake(
            "one_table_for_all",
            (
                ("for row, request", "table = []\n    for row, request"),
                (
                    "request.block_table, request",
                    "table[:] = [row]\n        request.block_table, request",
                ),
                ("= [row], 0", "= table, 0"),
            ),
        ),
        Mistake(
            "rows_go_on",
            (
                (
                    "batch = super().next_batch()",
                    "before = self.seed - len(self.line)\n    batch = super().next_batch()",
                ),
                ("= [row], 0", "= [before + row], 0"),
            ),
        ),
        Mistake(
            "whole_line",
            (
                (
                    "super().next_batch()",
                    "[self.line.popleft() for _ in range(len(self.line))]",
                ),
            ),
        ),
        Mistake(
            "left_in_line", (("super().next_batch()", "list(self.line)[: self.batch_size]"),)
        ),
    ),
)

EXERCISES = (SPAN, NEXT_BATCH)
